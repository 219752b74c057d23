"""The settings of fact extraction."""

from dataclasses import dataclass

from ..settings import CoreSettings, integer


@dataclass(frozen=True)
class ExtractionSettings(CoreSettings):
    """The model that extracts facts, and its time limit."""

    extraction_model: str = ""
    extraction_timeout_seconds: int = integer(60, 1, 600)
