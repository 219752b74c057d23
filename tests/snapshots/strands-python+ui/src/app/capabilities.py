"""What the project consists of: its settings, its commands and its capabilities, in order."""

from dataclasses import dataclass

import click

from .capability import Capability
from .own_capabilities import OWN_CAPABILITIES, OwnSettings
from .page.settings import UI_OPTION, PageSettings


@dataclass(frozen=True)
class Settings(OwnSettings, PageSettings):
    """The settings of one process; docs/ explains each."""

    project_name = "my-agent"


COMMANDS: list[click.Command] = []
OPTIONS: dict[str, list[click.Parameter]] = {
    "check": [],
    "serve": [UI_OPTION],
}


def make_capabilities(settings: Settings) -> list[Capability]:
    """Return the capabilities. What they need is loaded here, so that `--help` is quick."""
    from .chat_route import ChatRoute
    from .page.capability import Page

    kinds: list[type[Capability]] = [
        ChatRoute,
        Page,
    ]
    capabilities: list[Capability] = []
    for kind in [*kinds, *OWN_CAPABILITIES]:
        capabilities.append(kind(settings, [*capabilities]))
    return capabilities
