"""The settings of compaction."""

from dataclasses import dataclass

from ..settings import CoreSettings, integer


@dataclass(frozen=True)
class CompactionSettings(CoreSettings):
    """The summary model, and the time limit of a summary."""

    compaction_model: str = ""
    compaction_timeout_seconds: int = integer(30, 1, 86_400)
