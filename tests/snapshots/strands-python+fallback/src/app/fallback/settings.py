"""The setting of the second model."""

from dataclasses import dataclass

from ..settings import CoreSettings, string


@dataclass(frozen=True)
class FallbackSettings(CoreSettings):
    """Which model answers where MODEL fails."""

    model_fallback: str = string("(?!offline$).+", "the id of a model")
