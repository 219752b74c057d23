"""The settings of evals."""

from dataclasses import dataclass

from ..settings import CoreSettings


@dataclass(frozen=True)
class EvalSettings(CoreSettings):
    """Which model says whether a reply is as a sentence says."""

    judge_model: str = ""
