"""The settings, commands and capabilities that your answers enabled, in order."""

from dataclasses import dataclass

import click

from .background.settings import BackgroundSettings
from .capability import Capability


@dataclass(frozen=True)
class Settings(BackgroundSettings):
    """The settings of the agent: see docs/."""

    project_name = "my-agent"


COMMANDS: list[click.Command] = []
OPTIONS: dict[str, list[click.Parameter]] = {
    "check": [],
    "serve": [],
}


def load_kinds() -> list[type[Capability]]:
    """Import and return the capability classes. A late import keeps `--help` fast."""
    from .background.capability import Background

    return [
        Background,
    ]
