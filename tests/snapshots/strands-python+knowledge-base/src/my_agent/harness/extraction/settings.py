"""The settings of extraction."""

from dataclasses import dataclass

from ..settings import CoreSettings, integer


@dataclass(frozen=True)
class ExtractionSettings(CoreSettings):
    """Which model finds facts, and how long it may take."""

    extraction_model: str = ""
    extraction_timeout_seconds: int = integer(60, 1, 600)
