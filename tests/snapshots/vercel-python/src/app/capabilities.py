"""What the project consists of: its settings, its commands and its capabilities, in order."""

from dataclasses import dataclass

import click

from .capability import Capability
from .own_capabilities import OWN_CAPABILITIES, OwnSettings


@dataclass(frozen=True)
class Settings(OwnSettings):
    """The settings of one process; docs/ explains each."""

    project_name = "my-agent"


COMMANDS: list[click.Command] = []
OPTIONS: dict[str, list[click.Parameter]] = {
    "check": [],
    "serve": [],
}


def make_capabilities(settings: Settings) -> list[Capability]:
    """Return the capabilities. What they need is loaded here, so that `--help` is quick."""
    kinds: list[type[Capability]] = []
    capabilities: list[Capability] = []
    for kind in [*kinds, *OWN_CAPABILITIES]:
        capabilities.append(kind(settings, [*capabilities]))
    return capabilities
