"""The settings, commands and capabilities that your answers enabled, in order."""

from dataclasses import dataclass

import click

from .capability import Capability
from .effects.commands import effects
from .effects.settings import EffectSettings


@dataclass(frozen=True)
class Settings(EffectSettings):
    """The settings of the agent: see docs/."""

    project_name = "my-agent"


COMMANDS: list[click.Command] = [effects]
OPTIONS: dict[str, list[click.Parameter]] = {
    "check": [],
    "serve": [],
}


def load_kinds() -> list[type[Capability]]:
    """Import and return the capability classes. A late import keeps `--help` fast."""
    from .effects.capability import Effects

    return [
        Effects,
    ]
