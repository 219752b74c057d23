"""The commands of the agent, and the process that serves it."""

import asyncio
import errno
import json
import logging
import os
import re
import socket
import sys
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

import click
import uvicorn
from starlette.applications import Starlette

from .chat import chat
from .connection import Connection, max_connections
from .contract import CONTROL
from .copier_answers import check_answers
from .reload import serve_anew, take_over
from .settings import Settings, diagnostic, format_finding, read_settings
from .start import open_runtime, start

# Modules that load a framework or a client are imported by the command that needs them.
if TYPE_CHECKING:
    from .runtime import Runtime


@click.group()
def cli() -> None:
    """Talk to the agent here, serve it over HTTP, or check its settings."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler])


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(as_json: bool) -> None:
    """Report errors in the settings; exit with 1 if there is one."""
    from .runtime import Runtime

    settings, findings = read_settings()
    findings += Runtime.check(settings)
    findings += check_answers()
    try:
        _listen(settings).close()
    except click.ClickException as error:
        if getattr(error.__cause__, "errno", None) != errno.EADDRINUSE:  # by this agent, perhaps
            findings.append(diagnostic("SET-HOST", error.message))
    errors = sum(one["severity"] == "error" for one in findings)
    warnings = len(findings) - errors
    if as_json:
        report = {"diagnostics": findings, "errors": errors, "warnings": warnings}
        click.echo(json.dumps(report, ensure_ascii=False, separators=(",", ":")))
    else:
        lines = [*map(format_finding, findings), f"{errors} errors, {warnings} warnings"]
        click.echo("\n".join(lines))
    sys.exit(min(errors, 1))


class _Formatter(logging.Formatter):
    """Only the first line of an entry begins at the margin, so that no text can forge an entry."""

    def format(self, record: logging.LogRecord) -> str:
        return re.sub(CONTROL, "\ufffd", super().format(record)).replace("\n", "\n  ")


@cli.command()
@click.option("--reload", is_flag=True, help="Restart when a file of the project changes.")
@click.option("--ui", is_flag=True, help="Also serve a page to talk to the agent, as UI=1 does.")
def serve(reload: bool, ui: bool) -> None:
    """Serve the agent over HTTP on HOST and PORT."""
    if ui:
        os.environ["UI"] = "1"
    if reload:
        serve_anew()
    logging.getLogger("app").setLevel("INFO")
    with asyncio.Runner() as runner:
        serving = runner.get_loop().create_task(_serve(start()))
        while not serving.done():
            with suppress(SystemExit):  # of a task that a tool began; asyncio stops for it
                runner.get_loop().run_until_complete(serving)
        serving.result()


class _Server(uvicorn.Server):
    """A server that drains at the first signal and exits at the second."""

    def __init__(self, app: Starlette, seconds: int) -> None:
        config = uvicorn.Config(app, http=Connection, log_config=None, server_header=False)
        config.timeout_keep_alive = seconds
        config.timeout_graceful_shutdown = 1  # for clients that do not read their answer
        super().__init__(config)
        self.loop, self.signalled = asyncio.get_running_loop(), asyncio.Event()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.signalled.is_set():
            os._exit(1)
        self.loop.call_soon_threadsafe(self.signalled.set)

    async def on_tick(self, counter: int) -> bool:
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.check_time()
        return await super().on_tick(counter)


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        why = str(error.strerror).split(" (")[0].lower()
        where = f"HOST {settings.host}, PORT {settings.port}"
        raise click.ClickException(f"Cannot listen on {where}: {why}.") from error


async def _serve(runtime: "Runtime") -> None:
    from .chat_route import chat_routes
    from .page import page_routes
    from .server import Turns, create_app

    settings, turns, host = runtime.settings, Turns(), runtime.settings.host
    await open_runtime(runtime)
    listener = _listen(settings)
    hand_over = take_over(runtime.sessions.store)
    routes = [*chat_routes(runtime, turns), *page_routes(runtime)]
    app = create_app(runtime, turns, routes)
    Connection.most = max_connections(settings.max_turns)
    server = _Server(app, settings.request_timeout_seconds)
    running = asyncio.create_task(server.serve([listener]))
    if not settings.is_loopback and not settings.api_token:
        place = f"{host} is reachable from other machines"
        click.echo(f"Warning: {place}, and callers are not authenticated.")
    host, port = f"[{host}]" if ":" in host else host, listener.getsockname()[1]
    if settings.ui:
        name = "localhost" if settings.host in {"0.0.0.0", "::"} else host
        click.echo(f"Page: http://{name}:{port}/")
    click.echo("\n".join([*runtime.describe_endpoints(), f"Listening on http://{host}:{port}"]))
    await server.signalled.wait()
    await turns.drain(settings.shutdown_grace_seconds)
    await runtime.close()
    hand_over()
    server.should_exit = True
    await running
    sys.stdout.flush()
    os._exit(0)  # a thread that hangs in a tool or a client would keep the process alive


cli.add_command(chat)
