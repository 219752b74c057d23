"""What the project consists of: its settings, its commands and its capabilities, in order."""

from dataclasses import dataclass

import click

from .capability import Capability
from .mcp_servers.settings import McpSettings


@dataclass(frozen=True)
class Settings(McpSettings):
    """The settings of one process; docs/ explains each."""

    project_name = "my-agent"


COMMANDS: list[click.Command] = []
OPTIONS: dict[str, list[click.Parameter]] = {
    "check": [],
    "serve": [],
}


def load_kinds() -> list[type[Capability]]:
    """Return the classes of the capabilities. They are loaded here, so that `--help` is quick."""
    from .mcp_servers.capability import McpServers

    return [
        McpServers,
    ]
