"""The settings, commands and capabilities that your answers enabled, in order."""

from dataclasses import dataclass

import click

from .capability import Capability
from .collections.commands import erase_project
from .collections.settings import AGAINST_OPTION
from .extraction.settings import ExtractionSettings
from .memory.commands import forget, iam
from .memory.settings import MemorySettings


@dataclass(frozen=True)
class Settings(MemorySettings, ExtractionSettings):
    """The settings of the agent: see docs/."""

    project_name = "my-agent"


COMMANDS: list[click.Command] = [erase_project, forget, iam]
OPTIONS: dict[str, list[click.Parameter]] = {
    "check": [AGAINST_OPTION],
    "serve": [],
}


def load_kinds() -> list[type[Capability]]:
    """Import and return the capability classes. A late import keeps `--help` fast."""
    from .collections.capability import Declarations
    from .collections.state import EarlierTurns
    from .extraction.capability import Extraction
    from .memory.long_term import LongTermMemory

    return [
        Declarations,
        LongTermMemory,
        Extraction,
        EarlierTurns,
    ]
