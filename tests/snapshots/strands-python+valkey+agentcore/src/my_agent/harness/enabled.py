"""What the project consists of: its settings, its commands and its capabilities, in order."""

from dataclasses import dataclass

import click

from .capability import Capability
from .collections.settings import AGAINST_OPTION
from .memory.commands import forget, iam
from .memory.settings import MemorySettings
from .store.commands import sessions
from .store.settings import StoreSettings
from .store.valkey_settings import ValkeySettings


@dataclass(frozen=True)
class Settings(ValkeySettings, StoreSettings, MemorySettings):
    """The settings of one process; docs/ explains each."""

    project_name = "my-agent"


COMMANDS: list[click.Command] = [sessions, forget, iam]
OPTIONS: dict[str, list[click.Parameter]] = {
    "check": [AGAINST_OPTION],
    "serve": [],
}


def load_kinds() -> list[type[Capability]]:
    """Return the classes of the capabilities. They are loaded here, so that `--help` is quick."""
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
