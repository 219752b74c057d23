"""The conversation in a terminal, or line by line from a pipe."""

import asyncio
import json
import os
import re
import select
import sys
from contextlib import suppress
from itertools import cycle
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from . import contract
from .contract import AgentError, ToolCall, TurnRequest
from .settings import read_settings
from .start import open_runtime, start

try:
    import readline  # gives input() its keys and its history
except ImportError:
    EDITOR = ""
else:
    EDITOR = "GNU" if "GNU" in (readline.__doc__ or "") else "libedit"

if TYPE_CHECKING:
    from .runtime import Runtime

HELP = """\
/new      begin a new session
/session  print the id of the session
/quit     leave, as exit, quit and Ctrl-D do
Ctrl-C ends a running turn, clears a half typed line, and leaves at an empty one."""


@click.command()
@click.option("--session", default=lambda: str(uuid4()), help="Continue this session.")
@click.option("--actor", help="Speak as this actor.")
def chat(session: str, actor: str | None) -> None:
    """Talk to the agent here, also line by line from a pipe."""
    if not re.fullmatch(contract.SESSION_ID, session):
        raise click.BadParameter(contract.ERRORS["invalid_session_id"][1])
    if actor is not None and not re.fullmatch(contract.ACTOR_ID, actor):
        raise click.BadParameter(contract.ERRORS["invalid_actor"][1])
    screen, done, failed = Screen(), 0, 0
    if screen.is_live:  # at once: a framework takes seconds to load
        model = read_settings()[0].model
        who = f"my-agent, {'offline model' if model == 'offline' else model}"
        click.echo(f"{screen.style(who, 1)}. /help lists the commands; Ctrl-D leaves.")
    runtime = start()
    with asyncio.Runner() as runner:
        runner.run(open_runtime(runtime))
        while (line := screen.read()) is not None:
            command = line.strip()
            if command in {"/quit", "exit", "quit"}:
                break
            if command == "/help":
                click.echo(HELP)
            elif command == "/new":
                session, before, done = str(uuid4()), session, 0
                click.echo(f"New session {session}; the one before was {before}.")
            elif command == "/session":
                click.echo(f"This is session {session}.")
            elif re.match(r"/\w*(\s|$)", command):  # a path has another slash
                failed += 1
                click.echo("No such command: /help lists them.")
            elif command:
                reply = Reply(screen)
                try:
                    prompt = contract.check_prompt(line, runtime.settings.max_prompt_chars)
                    request = TurnRequest(session, actor, None, prompt)
                    if runner.run(_take_turn(runtime, request, reply)):
                        done += 1
                        click.echo()
                    elif screen.is_piped:
                        break
                    else:
                        reply.end_line()
                        click.echo("Interrupted: nothing of this turn was kept.")
                except AgentError as error:
                    failed += 1
                    reply.end_line()
                    click.echo(f"{error} {explain(error)}", nl=False)
                except KeyboardInterrupt:  # the second one in a turn
                    break
        runner.run(runtime.close())
        notice = runtime.retention_notice if done else "It had no new turn."
        click.echo(f"\nThis was session {session}. {notice}")
        if screen.is_live:
            os._exit(0)  # a thread that hangs in a tool would keep the process alive
    sys.exit(screen.is_piped and failed > 0)


async def _take_turn(runtime: "Runtime", request: TurnRequest, reply: "Reply") -> bool:
    """Run a turn and show it; return whether it was committed, and not ended by Ctrl-C."""
    from .turn import take_turn

    spinner = asyncio.create_task(reply.spin())
    try:
        await take_turn(runtime, request, reply.show)
        return True
    except asyncio.CancelledError:  # never of a commit that has begun
        reply.at_margin = reply.is_waiting  # ^C was printed behind a text
        return False
    finally:
        spinner.cancel()
        reply.stop_waiting()


def explain(error: AgentError) -> str:
    """Return why a turn failed, for whoever runs this agent, and what to look at."""
    why = str(error.__cause__ or error.detail or error.type)
    return f"({re.sub(contract.CONTROL, '', why)})\n{_advise(error)}"


def _advise(error: AgentError) -> str:
    """Return a line that says what to do when the model fails, or nothing."""
    from .model import ADDRESS, CREDENTIALS

    hints = {
        "HTTP 40[13]|Credential": f"look at {CREDENTIALS}",
        "HTTP 40[04]": f"look at MODEL and {ADDRESS}",
        "HTTP 429|[Tt]hrottl": "the provider's limit is reached, try again later",
        "Connect|OSError": f"look at {ADDRESS} and the network",
        "HTTP 5": "the provider failed or is overloaded, try again later",
    }
    for form, advice in hints.items():
        if error.type == "model_failed" and re.search(form, error.detail):
            return f"{error.detail}: {advice}.\n"
    return ""


class Screen:
    """The terminal, or the pipes in its place: those get no colours, spinner or calls of tools."""

    def __init__(self) -> None:
        self.is_piped = not sys.stdin.isatty()
        self.is_live = not self.is_piped and sys.stdout.isatty() and os.getenv("TERM") != "dumb"
        if EDITOR == "GNU":
            readline.parse_and_bind("set enable-bracketed-paste on")

    def style(self, text: str, code: int) -> str:
        """Return a text as bold (1) or dim (2) where that can be shown."""
        is_plain = os.getenv("NO_COLOR") or not self.is_live
        return text if is_plain else f"\x1b[{code}m{text}\x1b[0m"

    def read(self) -> str | None:
        """Return the next line, or all lines of a paste; None is the end of the conversation."""
        prompt = f"{self.style('>', 1)} "
        if EDITOR and self.is_live:  # it takes what is between these as of no width
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
                # Others than GNU readline do not know what was typed: there the second one leaves.
                is_half_typed = readline.get_line_buffer() if EDITOR == "GNU" else not is_again
                if self.is_piped or not is_half_typed:
                    return None
                is_again = True
                click.echo()


class Reply:
    """What a turn says, as it is shown."""

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
