"""The settings of the fallback model."""

from dataclasses import dataclass

from ..settings import CoreSettings, integer, string


@dataclass(frozen=True)
class FallbackSettings(CoreSettings):
    """The fallback model, and the time limit of MODEL for its first content."""

    model_fallback: str = string("(?!offline$).+", "the id of a model")
    fallback_seconds: int = integer(120, 1, 86_400)
