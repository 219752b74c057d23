"""The settings of background turns."""

from dataclasses import dataclass

from ..settings import CoreSettings, integer


@dataclass(frozen=True)
class BackgroundSettings(CoreSettings):
    """The limits of background turns, of their events and of their readers."""

    max_background_turns: int = integer(32, 1, 100_000)
    max_background_turns_per_actor: int = integer(4, 1, 100_000)
    max_event_bytes: int = integer(1_048_576, 1024, 1_000_000_000)
    event_seconds: int = integer(300, 1, 86_400)
    max_readers: int = integer(16, 1, 10_000)
