"""The conversation in a terminal, or from a pipe."""

import asyncio
import json
import os
import re
import select
import sys
from collections.abc import Coroutine
from contextlib import suppress
from importlib import import_module
from itertools import cycle
from typing import Any
from uuid import uuid4

import click

from . import contract
from .capabilities import Settings, make_capabilities
from .contract import ToolCall, Turn, check_prompt
from .log import as_agent_error

try:
    readline: Any = import_module("readline")  # gives input() its keys and its history
except ImportError:  # Windows has none
    EDITOR = ""
else:
    EDITOR = "GNU" if "GNU" in (readline.__doc__ or "") else "libedit"

HELP = """\
/new      begin a new session
/retry    run the last turn again, and replace it
/undo     delete the last turn
/session  print the id of the session
/quit     leave, as exit, quit and Ctrl-D do
Ctrl-C cancels the running turn, clears a half-typed line, or exits on an empty line."""


@click.command()
@click.option("--session", default=lambda: str(uuid4()), help="Continue this session.")
@click.option("--actor", help="Speak as this actor.")
def chat(session: str, actor: str | None) -> None:
    """Talk to the agent in this terminal, or from a pipe, one prompt per line."""
    if not re.fullmatch(contract.SESSION_ID, session):
        raise click.BadParameter(contract.ERRORS["invalid_session_id"][1])
    if actor is not None and not re.fullmatch(contract.ACTOR_ID, actor):
        raise click.BadParameter(contract.ERRORS["invalid_actor"][1])
    screen, done, failed = Screen(), 0, 0
    settings, findings = Settings.read()
    if screen.is_live:  # at once: a framework takes seconds to load
        model = "offline model" if settings.model == "offline" else settings.model
        title = screen.style(f"{settings.project_name}, {model}", 1)
        click.echo(f"{title}. /help lists the commands; Ctrl-D leaves.")
    from .advice import explain
    from .runtime import start_runtime
    from .turn import take_turn

    runtime = start_runtime(settings, findings, make_capabilities(settings))
    if runtime.actor_required and actor is None:
        actor = "local-user"
        click.echo(f"You are {actor}; choose another with `--actor ID`.")
    with asyncio.Runner() as runner:
        runner.run(runtime.open())
        while (line := screen.read()) is not None:
            command = line.strip()
            if command in {"/quit", "exit", "quit"}:
                break
            if command == "/help":
                click.echo(HELP)
            elif command == "/new":
                session, before, done = str(uuid4()), session, 0
                click.echo(f"Started session {session} (previous: {before}).")
            elif command == "/session":
                click.echo(f"This is session {session}.")
            elif re.match(r"/(?!(retry|undo)$)\w*(\s|$)", command):  # a path has another slash
                failed += 1
                click.echo("No such command: /help lists them.")
            elif command:
                reply = Reply(screen)
                turn = Turn(session, actor, None, "", reply.show)
                try:
                    if command == "/undo":
                        number = runner.run(_take_back(runtime, turn))
                        click.echo(f"Turn {number} was deleted.")
                        continue
                    if command == "/retry":
                        turn.replaces = 0
                    else:
                        turn.prompt = check_prompt(line, runtime.settings.max_prompt_chars)
                    last = runner.run(_show(take_turn(runtime, turn), reply))
                    while last and (answers := runtime.ask(last, turn, screen.read)):
                        last = runner.run(_show(take_turn(runtime, answers), reply))
                    if last:
                        done += 1
                        click.echo()
                    elif screen.is_piped:
                        break
                    else:
                        reply.end_line()
                        click.echo("Interrupted: nothing of this turn was kept.")
                except Exception as error:  # noqa: BLE001 (the conversation goes on)
                    failed += 1
                    reply.end_line()
                    failure = as_agent_error(error)
                    click.echo(f"{failure} {explain(failure)}", nl=False)
                except KeyboardInterrupt:  # the second one in a turn
                    break
        runner.run(runtime.close())
        notice = runtime.retention_notice if done else "Nothing was added to it."
        click.echo(f"\nThis was session {session}. {notice}")
        if screen.is_live:
            os._exit(0)  # a thread that hangs in a tool would keep the process alive
    sys.exit(screen.is_piped and failed > 0)


async def _take_back(runtime: Any, turn: Turn) -> int:
    async with runtime.sessions.open(turn.session_id, turn.actor) as session:
        return int(await session.take_back())


async def _show(turn: Coroutine[Any, Any, Any], reply: "Reply") -> Any:
    """Run a turn; return what it leaves, or None if Ctrl-C ended it."""
    spinner = asyncio.create_task(reply.spin())
    try:
        return await turn
    except asyncio.CancelledError:  # never of a commit that has begun
        reply.at_margin = reply.is_waiting  # ^C was printed behind a text
        return None
    finally:
        spinner.cancel()
        reply.stop_waiting()


class Screen:
    """The terminal. When piped: no colours, spinner or tool calls."""

    def __init__(self) -> None:
        self.is_piped = not sys.stdin.isatty()
        self.is_live = not self.is_piped and sys.stdout.isatty() and os.getenv("TERM") != "dumb"
        if EDITOR == "GNU":
            readline.parse_and_bind("set enable-bracketed-paste on")

    def style(self, text: str, code: int) -> str:
        """Return a text as bold (1) or dim (2) where that can be shown."""
        is_plain = os.getenv("NO_COLOR") or not self.is_live
        return text if is_plain else f"\x1b[{code}m{text}\x1b[0m"

    def read(self, question: str = "") -> str | None:
        """Return the next line, or all lines of a paste; None is the end of the conversation."""
        prompt = question or f"{self.style('>', 1) if EDITOR else '>'} "  # Windows prints codes
        if EDITOR and self.is_live:  # readline counts text between these markers as zero columns
            prompt = re.sub("(\x1b.*?m)", "\x01\\1\x02", prompt)
        is_again = False
        while True:
            try:
                lines = [input(prompt)]
                with suppress(EOFError, OSError):
                    # GNU readline reads a paste as a whole, others line by line.
                    while EDITOR != "GNU" and self.is_live and select.select([0], [], [], 0)[0]:
                        lines.append(input())
                if self.is_piped:
                    click.echo(lines[0])
                return "\n".join(lines)
            except EOFError:
                return None
            except KeyboardInterrupt:
                # libedit cannot report the half-typed line, so there the second Ctrl-C exits.
                is_half_typed = readline.get_line_buffer() if EDITOR == "GNU" else not is_again
                if self.is_piped or not is_half_typed:
                    return None
                is_again = True
                click.echo()


class Reply:
    """Prints the output of a turn."""

    def __init__(self, screen: Screen) -> None:
        self.screen, self.is_waiting, self.at_margin = screen, screen.is_live, True
        self.calls: dict[str, str] = {}

    async def spin(self) -> None:
        """Show that the turn runs, until its first text."""
        for frame in cycle("|/-\\"):
            if self.is_waiting:
                click.echo(f"{frame}\r", nl=False)  # what comes next overwrites it
            await asyncio.sleep(0.1)

    def stop_waiting(self) -> None:
        if self.is_waiting:
            click.echo("\r\x1b[K", nl=False)
        self.is_waiting = False

    def end_line(self) -> None:
        if not self.at_margin:
            click.echo()
        self.at_margin = True

    async def show(self, chunk: contract.Chunk) -> None:
        """Print a chunk of the turn; a call of a tool is one line, when its result is there."""
        if isinstance(chunk, str):
            self.stop_waiting()
            text = re.sub(contract.CONTROL, "", chunk)
            click.echo(text, nl=False)
            self.at_margin = text.endswith("\n") if text else self.at_margin
        elif self.screen.is_live:
            self.end_line()
            if isinstance(chunk, ToolCall):
                given = json.dumps(chunk.input, ensure_ascii=False, separators=(",", ":"))
                self.calls[chunk.id] = f"{_shorten(chunk.name)} {_shorten(given)}"
            else:
                sign = "failed:" if chunk.is_error else "->"
                line = f"{self.calls.get(chunk.id)} {sign} {_shorten(chunk.text)}"
                click.echo(self.screen.style(line, 2))


def _shorten(text: str) -> str:
    """Return a text as one line of at most 60 characters."""
    line = " ".join(re.sub(contract.CONTROL, "", text).split())
    return line if len(line) <= 60 else f"{line[:59]}…"
