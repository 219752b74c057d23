"""The commands of the agent, and the process that serves it."""

import asyncio
import errno
import json
import logging
import os
import re
import socket
import sys
from types import FrameType
from typing import TYPE_CHECKING
from uuid import uuid4

import click
import uvicorn
from starlette.applications import Starlette

from .answers import check_answers
from .connection import Connection
from .contract import ACTOR_ID, ERRORS, SESSION_ID, AgentError, TurnRequest, check_prompt
from .settings import Settings, diagnostic, format_finding, read_settings, refuse_errors

# Modules that load a framework or a client are imported by the command that needs them.
if TYPE_CHECKING:
    from .runtime import Runtime

# Control characters but tab and line feed: they could move the cursor or retitle the window.
CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f]"


@click.group()
def cli() -> None:
    """Talk to the agent here, serve it over HTTP, or check its settings."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler])


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


@cli.command()
@click.option("--session", default=lambda: str(uuid4()), help="Continue this session.")
@click.option("--actor", help="Speak as this actor.")
def chat(session: str, actor: str | None) -> None:
    """Talk to the agent here, also line by line from a pipe."""
    from .turn import take_turn

    if not re.fullmatch(SESSION_ID, session):
        raise click.BadParameter(ERRORS["invalid_session_id"][1])
    if actor is not None and not re.fullmatch(ACTOR_ID, actor):
        raise click.BadParameter(ERRORS["invalid_actor"][1])
    runtime, done, failed, is_piped = start(), 0, 0, not sys.stdin.isatty()
    with asyncio.Runner() as runner:
        runner.run(_open(runtime))
        while True:
            try:
                line = input("> ")
                click.echo(f"{line}\n" if is_piped else "", nl=False)
                prompt = check_prompt(line, runtime.settings.max_prompt_chars)
                request = TurnRequest(session, actor, None, prompt)
                runner.run(take_turn(runtime, request, _print))
                done += 1
                click.echo()
            except AgentError as error:
                failed += 1
                click.echo(f"{error} ({error.__cause__ or error.detail or error.type})")
                click.echo(_advise(error), nl=False)
            except (EOFError, KeyboardInterrupt):
                break
        runner.run(runtime.close())
    notice = runtime.retention_notice if done else "It had no new turn."
    click.echo(f"\nThis was session {session}. {notice}")
    sys.exit(is_piped and failed > 0)


def _advise(error: AgentError) -> str:
    """Return a line that names the settings to look at when the model fails, or nothing."""
    from .model import ADDRESS, CREDENTIALS

    hints = {
        "HTTP 40[13]|Credential": CREDENTIALS,
        "HTTP 40[04]": f"MODEL and {ADDRESS}",
        "Connect|OSError": f"{ADDRESS} and the network",
    }
    for form, names in hints.items():
        if error.type == "model_failed" and re.search(form, error.detail):
            return f"{error.detail}: look at {names}.\n"
    return ""


async def _print(chunk: str) -> None:
    click.echo(re.sub(CONTROL, "", chunk), nl=False)


class _Formatter(logging.Formatter):
    """Only the first line of an entry begins at the margin, so that no text can forge an entry."""

    def format(self, record: logging.LogRecord) -> str:
        return re.sub(CONTROL, "\ufffd", super().format(record)).replace("\n", "\n  ")


@cli.command()
def serve() -> None:
    """Serve the agent over HTTP on HOST and PORT."""
    logging.getLogger("app").setLevel("INFO")
    asyncio.run(_serve(start()))


async def _open(runtime: "Runtime") -> None:
    try:
        await runtime.open()
    except AgentError as error:
        raise click.ClickException(error.detail) from None


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
    from .server import Turns, create_app
    from .tracing import close_tracing, describe_tracing, open_tracing, with_caller

    settings, turns, host = runtime.settings, Turns(), runtime.settings.host
    open_tracing()
    await _open(runtime)
    listener = _listen(settings)
    server = _Server(with_caller(create_app(runtime, turns)), settings.request_timeout_seconds)
    running = asyncio.create_task(server.serve([listener]))
    if not settings.is_loopback and not settings.api_token:
        place = f"{host} is reachable from other machines"
        click.echo(f"Warning: {place}, and callers are not authenticated.")
    host, port = f"[{host}]" if ":" in host else host, listener.getsockname()[1]
    for line in describe_tracing():
        click.echo(line)
    click.echo("\n".join([*runtime.describe_endpoints(), f"Listening on http://{host}:{port}"]))
    await server.signalled.wait()
    await turns.drain(settings.shutdown_grace_seconds)
    await runtime.close()
    await close_tracing()
    server.should_exit = True
    await running
    sys.stdout.flush()
    os._exit(0)  # a thread that hangs in a tool or a client would keep the process alive
