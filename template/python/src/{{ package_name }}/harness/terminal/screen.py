"""What `chat` reads and prints as plain text: in a pipe, or in a terminal that can only print."""

import asyncio
import re
import sys
from collections.abc import Coroutine
from typing import Any

import click

from ..contract import CONTROL, AgentError, Chunk

HELP = """\
/new      begin a new session
/retry    run the last turn again, and replace it
/undo     delete the last turn
/history  list the messages of the session
/model    print which model answers
/tools    list the tools of the agent
/session  print the id of the session
/help     list the commands
/quit     leave, as exit, quit and Ctrl-D do
In a terminal Tab completes a command, and Alt-Enter begins a new line of the prompt.
Ctrl-C cancels the running turn, clears a half-typed line, or exits on an empty line."""


class Screen:
    """Plain text: no styles, no spinner and no tool calls."""

    is_live = False

    def __init__(self, is_once: bool) -> None:
        self.out = sys.stdout
        self.is_once = is_once
        self.is_piped = is_once or not sys.stdin.isatty()
        self.is_reading = False  # a thread still does, after Ctrl-C
        self._is_at_margin = True
        if is_once:
            sys.stdout = sys.stderr  # so that `out` has nothing but the reply

    def welcome(self, title: str) -> None:
        """Print the first line, if a person reads it."""

    def print(self, text: str) -> None:
        """Print lines of text."""
        click.echo(re.sub(CONTROL, "", text), self.out)

    async def read(self, question: str = "") -> str | None:
        """Return the next prompt, or the answer to a question; None is the end of them."""
        if self.is_once:
            nobody = "nobody can answer here: use `chat` without a question"
            raise AgentError("invalid_request", question.strip(), nobody)
        try:
            line = await asyncio.to_thread(input, question or "> ")
        except EOFError:
            return None
        except asyncio.CancelledError:  # Ctrl-C
            self.is_reading = True
            return None
        if self.is_piped:
            click.echo(line)
        return line

    async def follow(self, turn: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of a turn, or None if Ctrl-C cancelled it."""
        try:
            return await turn
        except asyncio.CancelledError:  # never of a commit that has begun
            self._is_at_margin = False  # behind ^C
            return None

    async def show(self, chunk: Chunk) -> None:
        """Print a text of the turn."""
        text = re.sub(CONTROL, "", chunk) if isinstance(chunk, str) else ""
        if text:
            click.echo(text, self.out, nl=False)
            self._is_at_margin = text.endswith("\n")

    def end_line(self) -> None:
        """Let the next text begin a line."""
        if not self._is_at_margin:
            click.echo("", self.out)
        self._is_at_margin = True

    def end_reply(self, cost: str) -> None:
        """End the reply; in a conversation by a line end of its own."""
        self._is_at_margin = self._is_at_margin and self.is_once
        self.end_line()


def shorten(text: str, most: int = 60) -> str:
    """Return a text as one line of at most so many characters."""
    line = " ".join(re.sub(CONTROL, "", text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
