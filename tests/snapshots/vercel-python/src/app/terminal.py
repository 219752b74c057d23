"""What a terminal reads and shows: prompts and their history, replies, and the log between them."""

import asyncio
import json
import logging
import os
import re
import select
import shutil
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from importlib import import_module
from itertools import cycle
from pathlib import Path
from threading import RLock
from typing import Any

import click

from .contract import CONTROL, AgentError, Chunk, ToolCall, Turn, visible
from .markdown import BOLD, DIM, Markdown

try:
    readline: Any = import_module("readline")  # gives input() its keys and its history
except ImportError:  # Windows has none
    EDITOR = ""
else:
    EDITOR = "GNU" if "GNU" in (readline.__doc__ or "") else "libedit"

MOST_PROMPTS = 1000  # in the history


class History:
    """The prompts of this user, also those of earlier conversations, for the arrow keys."""

    def __init__(self, project_name: str) -> None:
        state = os.getenv("XDG_STATE_HOME", "")
        home = state if os.path.isabs(state) else os.path.expanduser("~/.local/state")
        self._path, self._last = Path(home, project_name, "chat_history"), ""
        readline.set_auto_history(False)  # answers to questions are no prompts
        with suppress(OSError):
            text = self._path.read_text("utf-8", "replace")
            lines = re.sub(CONTROL, "", text).split("\n")[:-1]
            for self._last in lines[-MOST_PROMPTS:]:
                readline.add_history(self._last)
            if len(lines) > MOST_PROMPTS:
                self._path.write_text("\n".join([*lines[-MOST_PROMPTS:], ""]), "utf-8")

    def add(self, prompt: str) -> None:
        """Keep a prompt; one of several lines, such as a pasted file, is not written."""
        prompt = re.sub(CONTROL, "", prompt)
        if not prompt.strip() or prompt == self._last:
            return
        self._last = prompt
        readline.add_history(prompt)
        if "\n" not in prompt and self._path.is_absolute():
            with suppress(OSError):
                self._path.parent.mkdir(0o700, parents=True, exist_ok=True)
                file = os.open(self._path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
                with open(file, "ab") as history:
                    history.write(f"{prompt}\n".encode(errors="replace"))


class Screen:
    """The terminal. When piped: no styles, spinner or tool calls."""

    def __init__(self, project_name: str, is_once: bool) -> None:
        self.out, self.is_once = sys.stdout, is_once
        self.is_piped = is_once or not sys.stdin.isatty()
        is_seen = self.out.isatty() and os.getenv("TERM") != "dumb"
        self.is_live = is_seen and (is_once or not self.is_piped)
        self.is_plain = not self.is_live or bool(os.getenv("NO_COLOR"))
        self._is_replying, self._log, self._lock = False, list[str](), RLock()  # tools are threads
        for handler in logging.getLogger().handlers if self.is_live else []:
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
                handler.setStream(self)
        has_history = self.is_live and EDITOR and not is_once
        self._history = History(project_name) if has_history else None
        if EDITOR == "GNU":
            readline.parse_and_bind("set enable-bracketed-paste on")
        if is_once:
            sys.stdout = sys.stderr  # so that `out` has nothing but the reply

    def print(self, text: str, is_reply: bool = False) -> None:
        """Print a text as it is; behind a text of a reply the log is kept."""
        with self._lock:
            self._is_replying = is_reply and self.is_live
            click.echo(text, self.out, nl=False)

    def wrap(self, text: str) -> str:
        """Return a text with its words wrapped whole, where a terminal shows it."""
        if not self.is_live:
            return text
        markdown = Markdown(columns, None)
        return markdown.feed(text) + markdown.end()

    def style(self, text: str, code: str) -> str:
        """Return a text in a style, where that can be shown."""
        return text if self.is_plain or not code else f"\x1b[{code}m{text}\x1b[0m"

    def write(self, line: str) -> None:
        """Print a line of the log, or keep it until the text of the reply ends."""
        self._log.append(line)
        self.flush()

    def flush(self) -> None:
        """Print the lines of the log that were kept."""
        with self._lock:
            while self._log and not self._is_replying:
                click.echo(self._log.pop(0), nl=False, err=True)

    def read_prompt(self) -> str | None:
        """Return the next prompt, and keep it in the history; None is the end."""
        line = self.read()
        if line is not None and self._history:
            self._history.add(line)
        return line

    def read(self, question: str = "") -> str | None:
        """Return the next line, or all lines of a paste; None is the end of the conversation.

        A question may have several lines; answers are typed behind the last.
        """
        if self.is_once:
            nobody = "nobody can answer here: use `chat` without a question"
            raise AgentError("invalid_request", question.strip(), nobody)
        above, line_end, last = question.rpartition("\n")
        self.print(above + line_end)  # a line editor would draw all lines again for each key
        prompt = last or f"{self.style('>', BOLD) if EDITOR else '>'} "  # Windows prints codes
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
        self._seconds, self._calls = 0.0, dict[str, str]()
        self._begin()

    def _begin(self) -> None:
        style = None if self.screen.is_plain else self.screen.style
        self._markdown = Markdown(columns, style) if self.screen.is_live else None

    async def follow(self, turn: Coroutine[Any, Any, Any]) -> Any:
        """Run a turn; return what it leaves, or None if Ctrl-C ended it."""
        spinner, start = asyncio.create_task(self._spin()), time.monotonic()
        try:
            result = await turn
            if self.screen.is_live:
                self.end_line()
            return result
        except asyncio.CancelledError:  # never of a commit that has begun
            self.at_margin = self.is_waiting  # ^C was printed behind a text
            self._begin()  # without what is held back
            return None
        finally:
            spinner.cancel()
            self._stop_waiting()
            self._seconds += time.monotonic() - start

    async def _spin(self) -> None:
        """Show that the turn runs, until its first text."""
        for frame in cycle("|/-\\"):
            if self.is_waiting:
                self.screen.print(f"{frame}\r")  # what comes next overwrites it
            await asyncio.sleep(0.1)

    def _stop_waiting(self) -> None:
        if self.is_waiting:
            self.screen.print("\r\x1b[K")
        self.is_waiting = False

    def end_line(self) -> None:
        """Print what is held back of the text and the log; what comes next begins a line."""
        if self._markdown:
            self._print(self._markdown.end())
        self.screen.print("" if self.at_margin else "\n")
        self.at_margin = True
        self.screen.flush()
        self._begin()

    def end(self, turns: list[Turn]) -> None:
        """End the reply; in a conversation with what its turns cost."""
        if self.screen.is_once:
            return self.end_line()
        given, cached, written = (
            sum(getattr(turn, f"{kind}_tokens") for turn in turns)
            for kind in ("input", "cached", "output")
        )
        tokens = f"{given:,} tokens in{f' ({cached:,} cached)' if cached else ''}, {written:,} out"
        facts = [tokens] if given or written else []
        facts += [f"{self._seconds:.1f} s", *(turn.detail for turn in turns if turn.detail)]
        usage = self.screen.style(", ".join(facts), DIM) if self.screen.is_live else ""
        return self.screen.print(f"{usage}\n")

    async def show(self, chunk: Chunk) -> None:
        """Print a chunk of the turn; a call of a tool is one line, when its result is there."""
        if isinstance(chunk, str):
            text = re.sub(CONTROL, "", chunk)
            self._print(self._markdown.feed(text) if self._markdown else text)
        elif self.screen.is_live and not self.screen.is_once:
            self.end_line()
            if isinstance(chunk, ToolCall):
                given = json.dumps(chunk.input, ensure_ascii=False, separators=(",", ":"))
                self._calls[chunk.id] = f"{shorten(visible(chunk.name))} {shorten(visible(given))}"
            else:
                sign = "failed:" if chunk.is_error else "->"
                line = f"{self._calls.get(chunk.id)} {sign} {shorten(chunk.text)}"
                self.screen.print(self.screen.style(line, DIM) + "\n")

    def _print(self, text: str) -> None:
        if text:
            self._stop_waiting()
            self.screen.print(text, is_reply=True)
            self.at_margin = text.endswith("\n")


def columns() -> int:
    """Return the width of the terminal."""
    return max(shutil.get_terminal_size().columns, 10)


def shorten(text: str, most: int = 60) -> str:
    """Return a text as one line of at most so many characters."""
    line = " ".join(re.sub(CONTROL, "", text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
