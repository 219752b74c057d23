"""The commands: serve, chat and check."""

import asyncio
import json
import logging
import os
import re
import socket
import sys
from types import FrameType
from uuid import uuid4

import click
import uvicorn

from .contract import ACTOR_ID, ERRORS, SESSION_ID, AgentError, Ask, check_prompt
from .parts import Parts
from .server import Turns, create_app
from .settings import read_settings
from .turn import take_turn


@click.group()
def cli() -> None:
    """Talk to the agent here, serve it over HTTP, or check its settings."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]


def start() -> Parts:
    """The parts of this process; an error in the settings keeps it from starting."""
    settings, found = read_settings()
    found += Parts.check(settings)
    if errors := [one["message"] for one in found if one["severity"] == "error"]:
        raise click.ClickException("\n".join(errors))
    for name in ("ai", "strands", "uvicorn"):  # which log what exceptions say, and so prompts
        logging.getLogger(name).setLevel("CRITICAL")
    if settings.model == "offline":
        click.echo("The offline model answers. It is no language model; README.md names others.")
    return Parts(settings)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(as_json: bool) -> None:
    """Say what is wrong with the settings; exit with 1 for an error."""
    settings, found = read_settings()
    found += Parts.check(settings)
    errors = sum(one["severity"] == "error" for one in found)
    warnings = len(found) - errors
    if as_json:
        report = {"diagnostics": found, "errors": errors, "warnings": warnings}
        click.echo(json.dumps(report, ensure_ascii=False, separators=(",", ":")))
    else:
        lines = [f"{one['file']}:{one['line']} {one['id']} {one['message']}" for one in found]
        click.echo("\n".join([*lines, f"{errors} errors, {warnings} warnings"]))
    sys.exit(min(errors, 1))


@cli.command()
@click.option("--session", default=lambda: str(uuid4()), help="Come back to this session.")
@click.option("--actor", help="Be this person.")
def chat(session: str, actor: str | None) -> None:
    """Talk to the agent here, also line by line from a pipe."""
    if not re.fullmatch(SESSION_ID, session):
        raise click.BadParameter(ERRORS["invalid_session_id"][1])
    if actor is not None and not re.fullmatch(ACTOR_ID, actor):
        raise click.BadParameter(ERRORS["invalid_actor"][1])
    parts, done, failed, is_piped = start(), 0, 0, not sys.stdin.isatty()
    with asyncio.Runner() as runner:
        while True:
            try:
                line = input("> ")
                click.echo(f"{line}\n" if is_piped else "", nl=False)
                prompt = check_prompt(line, parts.settings.max_prompt_chars)
                runner.run(take_turn(parts, Ask(session, actor, None, prompt), _say))
                done += 1
                click.echo()
            except AgentError as error:
                failed += 1
                click.echo(f"{error} ({error.__cause__ or error.detail or error.type})")
            except (EOFError, KeyboardInterrupt):
                break
        runner.run(parts.close())
    click.echo(f"\nThis was session {session}. {parts.kept if done else 'It had no new turn.'}")
    sys.exit(is_piped and failed > 0)


async def _say(chunk: str) -> None:
    # Without control characters, which could move the cursor or retitle the window.
    click.echo(re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", chunk), nl=False)


@cli.command()
def serve() -> None:
    """Serve the agent over HTTP on HOST and PORT."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("app").setLevel("INFO")
    asyncio.run(_serve(start()))


class _Server(uvicorn.Server):
    """A server that drains at the first signal and leaves at once at the second."""

    def __init__(self, parts: Parts, turns: Turns) -> None:
        app = create_app(parts, turns)
        config = uvicorn.Config(app, log_config=None, server_header=False)
        config.timeout_graceful_shutdown = 1  # for clients that do not read what was answered
        super().__init__(config)
        self.loop, self.signalled = asyncio.get_running_loop(), asyncio.Event()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.signalled.is_set():
            os._exit(1)
        self.loop.call_soon_threadsafe(self.signalled.set)


async def _serve(parts: Parts) -> None:
    settings, turns, host = parts.settings, Turns(), parts.settings.host
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, settings.port), family=family)
    except OSError as error:
        why = str(error.strerror).split(" (")[0].lower()
        where = f"HOST {host}, PORT {settings.port}"
        raise click.ClickException(f"Cannot listen on {where}: {why}.") from None
    server = _Server(parts, turns)
    running = asyncio.create_task(server.serve([listener]))
    if not settings.is_loopback:
        click.echo(f"Warning: HOST {host} is open to other machines, and callers are believed.")
    host, port = f"[{host}]" if ":" in host else host, listener.getsockname()[1]
    click.echo("\n".join([*parts.contacts(), f"Listening on http://{host}:{port}"]))
    await server.signalled.wait()
    await turns.drain(settings.shutdown_grace_seconds)
    await parts.close()
    server.should_exit = True
    await running
    sys.stdout.flush()
    os._exit(0)  # a thread that hangs in a tool or in a vendor's client would keep the process
