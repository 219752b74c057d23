"""The settings of evals."""

from dataclasses import dataclass

from ..settings import CoreSettings


@dataclass(frozen=True)
class EvalSettings(CoreSettings):
    """The model that judges replies (`judge` in a case)."""

    judge_model: str = ""
