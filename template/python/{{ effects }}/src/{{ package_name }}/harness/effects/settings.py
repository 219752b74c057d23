"""The settings of effects."""

from dataclasses import dataclass

from ..settings import CoreSettings, integer


@dataclass(frozen=True)
class EffectSettings(CoreSettings):
    """Limit the retries, the time and the number of effects."""

    effect_retry_seconds: int = integer(3600, 0, 2_592_000)
    effect_timeout_seconds: int = integer(10, 1, 3600)
    max_effects: int = integer(64, 1, 10_000)
    max_effect_bytes: int = integer(65_536, 1, 100_000_000)
