"""The settings of compaction."""

from dataclasses import dataclass

from ..settings import CoreSettings, integer


@dataclass(frozen=True)
class CompactionSettings(CoreSettings):
    """Which model summarizes, and how long a turn waits for it."""

    compaction_model: str = ""
    compaction_timeout_seconds: int = integer(30, 1, 86_400)
