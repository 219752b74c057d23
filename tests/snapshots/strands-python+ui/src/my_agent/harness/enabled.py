"""The settings, commands and capabilities that your answers enabled, in order."""

from dataclasses import dataclass

import click

from .capability import Capability
from .page.settings import UI_OPTION, PageSettings


@dataclass(frozen=True)
class Settings(PageSettings):
    """The settings of the agent: see docs/."""

    project_name = "my-agent"


COMMANDS: list[click.Command] = []
OPTIONS: dict[str, list[click.Parameter]] = {
    "check": [],
    "serve": [UI_OPTION],
}


def load_kinds() -> list[type[Capability]]:
    """Import and return the capability classes. A late import keeps `--help` fast."""
    from .http.chat_route import ChatRoute
    from .page.capability import Page

    return [
        ChatRoute,
        Page,
    ]
