"""The settings, commands and capabilities that your answers enabled, in order."""

from dataclasses import dataclass

import click

from .auth.settings import AuthSettings
from .capability import Capability


@dataclass(frozen=True)
class Settings(AuthSettings):
    """The settings of the agent: see docs/."""

    project_name = "my-agent"


COMMANDS: list[click.Command] = []
OPTIONS: dict[str, list[click.Parameter]] = {
    "check": [],
    "serve": [],
}


def load_kinds() -> list[type[Capability]]:
    """Import and return the capability classes. A late import keeps `--help` fast."""
    from .auth.capability import Auth

    return [
        Auth,
    ]
