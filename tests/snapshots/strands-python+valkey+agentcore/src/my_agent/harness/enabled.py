"""The settings, commands and capabilities that your answers enabled, in order."""

from dataclasses import dataclass

import click

from .capability import Capability
from .collections.commands import erase_project
from .collections.settings import AGAINST_OPTION
from .memory.commands import forget, iam
from .memory.settings import MemorySettings
from .store.commands import sessions
from .store.settings import StoreSettings
from .store.valkey_settings import ValkeySettings


@dataclass(frozen=True)
class Settings(ValkeySettings, StoreSettings, MemorySettings):
    """The settings of the agent: see docs/."""

    project_name = "my-agent"


COMMANDS: list[click.Command] = [erase_project, sessions, forget, iam]
OPTIONS: dict[str, list[click.Parameter]] = {
    "check": [AGAINST_OPTION],
    "serve": [],
}


def load_kinds() -> list[type[Capability]]:
    """Import and return the capability classes. A late import keeps `--help` fast."""
    from .collections.capability import Declarations
    from .collections.state import EarlierTurns
    from .memory.long_term import LongTermMemory
    from .memory.session_erasure import SessionErasure
    from .store.capability import Store

    return [
        Declarations,
        Store,
        LongTermMemory,
        SessionErasure,
        EarlierTurns,
    ]
