"""Plain-text input and output of `chat`, for pipes and simple terminals."""

import asyncio
import re
import sys
from collections.abc import Coroutine
from typing import Any

import click

from ..contract import CONTROL, AgentError, Chunk

HELP = """\
/new      begin a new session
/attach   attach a file to the next prompt; without a path, remove all files
/retry    rerun and replace the last turn
/undo     delete the last turn
/history  list the messages of the session
/model    print the model
/tools    list the tools of the agent
/session  print the session id
/help     list the commands
/quit     leave (also exit, quit and Ctrl-D)
In a terminal, Tab completes a command and Alt-Enter inserts a line break.
Ctrl-C cancels the running turn, clears the line, or leaves if the line is empty."""


class Screen:
    """A screen that shows no styles, spinner or tool calls."""

    is_live = False

    def __init__(self, is_single_question: bool) -> None:
        self.out = sys.stdout
        self.is_single_question = is_single_question
        self.is_piped = is_single_question or not sys.stdin.isatty()
        self.is_reading = False  # after Ctrl-C, a thread still reads
        self._is_at_margin = True
        if is_single_question:
            sys.stdout = sys.stderr  # `out` carries only the reply

    def welcome(self, title: str) -> None:
        """Print the first line in a terminal."""

    def print(self, text: str) -> None:
        """Print lines of text."""
        click.echo(re.sub(CONTROL, "", text), self.out)

    async def read(self, question: str = "") -> str | None:
        """Return the next prompt, or the answer to a question; None means the end."""
        if self.is_single_question:
            detail = "no user can answer this question: run `chat` without a prompt argument"
            raise AgentError("invalid_request", question.strip(), detail)
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
        except asyncio.CancelledError:  # a running commit always ends
            self._is_at_margin = False  # after ^C
            return None

    async def show(self, chunk: Chunk) -> None:
        """Print text of the turn."""
        text = re.sub(CONTROL, "", chunk) if isinstance(chunk, str) else ""
        if text:
            click.echo(text, self.out, nl=False)
            self._is_at_margin = text.endswith("\n")

    def end_line(self) -> None:
        """End an unfinished line."""
        if not self._is_at_margin:
            click.echo("", self.out)
        self._is_at_margin = True

    def end_reply(self, cost: str) -> None:
        """End the reply; in a conversation, add a blank line."""
        self._is_at_margin = self._is_at_margin and self.is_single_question
        self.end_line()


def shorten(text: str, max_chars: int = 60) -> str:
    """Shorten text to one line of at most `max_chars` characters."""
    line = " ".join(re.sub(CONTROL, "", text).split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"
