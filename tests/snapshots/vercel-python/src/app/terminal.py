"""What a terminal shows and reads: Markdown as it streams, whole words, prompts and the log."""

import asyncio
import json
import logging
import os
import re
import select
import shutil
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cache
from itertools import cycle, groupby
from pathlib import Path
from threading import RLock
from typing import Any
from unicodedata import category, east_asian_width

import click

from .contract import CONTROL, AgentError, Chunk, ToolCall, Turn

try:
    import readline  # gives input() its keys and its history
except ImportError:
    EDITOR = ""
else:
    EDITOR = "GNU" if "GNU" in (readline.__doc__ or "") else "libedit"

MOST_PROMPTS = 1000  # in the history
LONGEST = 400  # characters that are held back until it is clear what they are
BOLD, DIM, CODE, BOLD_CODE = "1", "2", "36", "1;36"
PREFIX = re.compile(r"[ \t]*(?:(?:#{1,6}|[-*+]|[0-9]{1,9}[.)])[ \t]+(?=\S))?")
FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^`\n]*)\n")
UNCLEAR = re.compile(r"[-#*+`~0-9.) \t]*|[ \t]*(?:`{3,}|~{3,})[^`\n]*")  # may become one of both
# Bold is neither `x**2 + y**2` nor `**some, **others`.
SPANS = {
    "*": re.compile(
        r"(?<![a-zA-Z0-9)])(\*\*\*?)(?=[^\s*])((?:(?!\*\*).)+)(?<!\s)\1(?=[^*a-zA-Z0-9])"
    ),
    "`": re.compile(r"(`+)(?!`) ?(.*?[^`]) ?\1(?=[^`])"),
}
UNCLEAR_SPAN = re.compile(r"\*{1,3}|\*{2,3}[^\s*](?:(?!\*\*).)*\*{0,3}|`+.*")
# In a line, behind a wide character.
NEVER_FIRST = ",.;:!?)]}\u3001\u3002\uff0c\uff0e\uff1a\uff1b\uff01\uff1f\uff09\u300d\u300f"


@cache
def width(char: str) -> int:
    """Return how many columns a character takes."""
    if category(char) in {"Mn", "Me", "Cf"} or "\U0001f3fb" <= char <= "\U0001f3ff":
        return 0  # accents and skin tones belong to the character in front
    return 2 if east_asian_width(char) in "WF" else 1


class Markdown:
    """Styles Markdown and wraps its words, whatever chunks the text comes in.

    A word is shown when it is whole, and so is what is bold or code. Without `style` the words
    are wrapped, and all marks stay.
    """

    def __init__(self, columns: Callable[[], int], style: Callable[[str, str], str] | None) -> None:
        self._measure, self._style, self._out = columns, style, list[str]()
        self._start: str | None = ""  # of a line, until it is clear what the line is
        self._fence = self._code = ""  # of the code block; the style of the line
        self._columns = self._column = self._indent = 0
        self._before = self._held = ""  # what may become a span, and the character in front of it
        self._space, self._word = "", list[tuple[str, str]]()  # characters, each with its style

    def feed(self, text: str) -> str:
        """Return what can be shown after this text."""
        for char in text:
            if self._start is None:
                self._read(char)
            else:
                self._begin(self._start + char)
        shown, self._out = "".join(self._out), []
        return shown

    def end(self) -> str:
        """Return what was held back."""
        return self.feed("\n")[:-1]

    def _begin(self, start: str) -> None:
        """Read the start of a line, until it is clear what the line is."""
        self._start = start
        if len(start) <= LONGEST and UNCLEAR.fullmatch(start):
            return
        fence, opened, prefix = FENCE.fullmatch(start), self._fence, ""
        self._start, self._columns, self._code = None, self._measure(), ""
        if opened or fence:
            self._columns, self._code = sys.maxsize, DIM  # code is not wrapped
            self._fence = opened or (fence[1] if fence else "")
        elif found := PREFIX.match(start):
            prefix, start = found[0].replace("\t", "    "), start[found.end() :]
            if self._style and "#" in prefix:
                prefix, self._code = "", BOLD
            elif self._style:
                prefix = re.sub("[-*+]", "•", prefix)
        self._column, self._indent = len(prefix), min(len(prefix), self._columns // 2)
        self._out.append(prefix)
        for char in start:
            self._read(char)
        if fence and opened and fence[1].startswith(opened) and not fence[2].strip():
            self._fence = ""

    def _read(self, char: str) -> None:
        """Read a character of a line; what may become bold or code is held until it does."""
        if self._fence or not self._style:
            return self._add(char, self._code)
        self._held += char
        while held := self._held:
            form, before = SPANS.get(held[0]), len(self._before)
            span = form.match(self._before + held, before) if form else None
            if form and not span and len(held) <= LONGEST and UNCLEAR_SPAN.fullmatch(held):
                return None
            size = len(held) - len(held.lstrip(held[0])) if form else 1
            size = span.end() - before if span else size
            if span and held[0] == "*":
                for at, text in enumerate(re.split("`([^`]+)`", span[2])):
                    self._add(text, BOLD_CODE if at % 2 else BOLD)
            elif span:
                self._add(span[2], BOLD_CODE if self._code else CODE)
            else:
                self._add(held[:size], self._code)
            self._before, self._held = held[size - 1], held[size:]
        return None

    def _add(self, text: str, code: str) -> None:
        """Add characters to the word; white space, and wide characters, end it."""
        for char in text:
            if char in " \t\n":
                self._end_word()
                blank = char if self._fence or char == " " else "    "
                self._space = (self._space + blank)[:LONGEST]
                if char == "\n":
                    self._out.append(char)
                    self._start, self._space = "", ""
                continue
            if self._word and width(char) and char not in NEVER_FIRST:
                is_wide = 2 in {width(char), width(self._word[0][0])}
                if is_wide and self._word[-1][0] != "\u200d":  # joins two emojis
                    self._end_word()
            self._word.append((char, code))

    def _end_word(self) -> None:
        if not self._word:
            return
        new_line = self._room(len(self._space) + sum(width(char) for char, _ in self._word))
        self._out.append(new_line or self._space)
        self._column += 0 if new_line else len(self._space)
        for code, chars in groupby(self._word, lambda pair: pair[1]):
            text = ""
            for char, _ in chars:
                text += self._room(width(char)) + char
                self._column += width(char)
            self._out.append(self._style(text, code) if self._style else text)
        self._space, self._word = "", []

    def _room(self, size: int) -> str:
        """Return what begins a new line, if that is needed for so many columns."""
        if self._column <= self._indent or self._column + size <= self._columns:
            return ""
        self._columns, self._column = self._measure(), self._indent
        return "\n" + " " * self._indent


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
        """Return the next line, or all lines of a paste; None is the end of the conversation."""
        if self.is_once:
            nobody = "nobody can answer here: use `chat` without a question"
            raise AgentError("invalid_request", question.strip(), nobody)
        prompt = question or f"{self.style('>', BOLD)} "
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
                self._calls[chunk.id] = f"{shorten(chunk.name)} {shorten(given)}"
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
