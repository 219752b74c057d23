"""What the project consists of: its settings, its commands and its capabilities, in order."""

from dataclasses import dataclass

import click

from .capability import Capability
from .collections.settings import AGAINST_OPTION
from .own_capabilities import OWN_CAPABILITIES, OwnSettings
from .store.commands import sessions
from .store.settings import StoreSettings
from .store.valkey_settings import ValkeySettings


@dataclass(frozen=True)
class Settings(OwnSettings, ValkeySettings, StoreSettings):
    """The settings of one process; docs/ explains each."""

    project_name = "my-agent"


COMMANDS: list[click.Command] = [sessions]
OPTIONS: dict[str, list[click.Parameter]] = {
    "check": [AGAINST_OPTION],
    "serve": [],
}


def make_capabilities(settings: Settings) -> list[Capability]:
    """Return the capabilities. What they need is loaded here, so that `--help` is quick."""
    from .collections.capability import Declarations
    from .collections.state import EarlierTurns
    from .metrics.capability import Metrics
    from .store.capability import Store

    kinds: list[type[Capability]] = [
        Declarations,
        Store,
        EarlierTurns,
        Metrics,
    ]
    capabilities: list[Capability] = []
    for kind in [*kinds, *OWN_CAPABILITIES]:
        capabilities.append(kind(settings, [*capabilities]))
    return capabilities
