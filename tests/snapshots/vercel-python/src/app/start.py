"""The start of a command that runs turns: its settings, its log and its runtime."""

import logging
from typing import TYPE_CHECKING

import click

from .contract import AgentError
from .settings import read_settings, refuse_errors

# Modules that load a framework or a client are imported by the function that needs them.
if TYPE_CHECKING:
    from .runtime import Runtime


def start() -> "Runtime":
    """Return the runtime of this process; refuse to start when `check` finds an error."""
    from .runtime import Runtime

    settings, findings = read_settings()
    findings += Runtime.check(settings)
    refuse_errors(findings)
    # Their exceptions may quote prompts; asyncio logs each connection that it cannot accept.
    for name in ("ai", "asyncio", "opentelemetry", "strands", "uvicorn"):
        logging.getLogger(name).setLevel("CRITICAL")
    if settings.model == "offline":
        click.echo("MODEL is not set: the offline model only echoes. See README.md to choose one.")
    return Runtime(settings)


async def open_runtime(runtime: "Runtime") -> None:
    """Connect; what cannot work ends the command."""
    try:
        await runtime.open()
    except AgentError as error:
        raise click.ClickException(error.detail) from None
