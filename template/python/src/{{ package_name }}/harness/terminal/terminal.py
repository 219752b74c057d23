"""A terminal screen: streams replies as Markdown, with the log between them."""

import asyncio
import json
import logging
import os
import re
import sys
import time
from collections.abc import Coroutine
from threading import Lock
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import CodeBlock, Markdown, TableDataElement
from rich.segment import Segment
from rich.spinner import Spinner
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from ..contract import CONTROL, Chunk, Reasoning, ToolCall, ToolResult, escape_invisible
from .screen import Screen, shorten

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

# Show HTML and link definitions as text.
PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
PARSER.disable("reference")
MAX_DEPTH = 12  # of lists and quotes; deeper Markdown is shown as code
THEME = Theme({"markdown.code": "cyan"})


class Terminal(Screen):
    """Prints finished blocks of a reply; redraws the last block while it grows."""

    is_live = True
    _editor: "PromptSession[str] | None" = None

    def __init__(self, project_name: str, is_single_question: bool) -> None:
        super().__init__(is_single_question)
        self._project_name = project_name
        self._is_plain = bool(os.getenv("NO_COLOR"))
        self._is_log_seen = sys.stderr.isatty()
        self._console = Console(
            file=self.out if is_single_question else None,  # None: the current `sys.stdout`
            color_system=None if self._is_plain else "auto",
            theme=THEME,
            highlight=False,
        )
        self._live = self._make_live()
        self._spinner = Spinner("line")
        self._block = ""  # unprinted Markdown, or text of the reasoning
        self._is_reasoning = False
        self._calls = dict[str, str]()
        self._log = list[str]()
        self._is_replying = False
        self._lock = Lock()  # tools log from threads
        for handler in logging.getLogger().handlers if self._is_log_seen else []:
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
                handler.setStream(self)

    def welcome(self, title: str) -> None:
        if not self.is_single_question:
            line = Text(f"{title}. /help lists the commands; Ctrl-D leaves.")
            line.stylize("bold", 0, len(title))
            self._console.print(line)

    def print(self, text: str, style: str = "") -> None:
        self._console.print(Text(re.sub(CONTROL, "", text), style))

    def write(self, line: str) -> None:
        """Print a log line, after the current text of the reply."""
        with self._lock:
            self._log.append(line)
        self.flush()

    def flush(self) -> None:
        """Print the pending log lines."""
        with self._lock:
            while self._log and not self._is_replying:
                self._console.out(self._log.pop(0), end="", highlight=False)

    async def read(self, question: str = "") -> str | None:
        if self.is_single_question:
            return await super().read(question)
        # The import takes 0.1 s, so the first line comes before it.
        from .line_editor import make_editor, read_line

        if question:
            above, line_end, last = question.rpartition("\n")
            self._console.out(above, end=line_end, highlight=False)  # not redrawn
            return await read_line(last)
        self._editor = self._editor or make_editor(self._project_name)
        return await read_line([("" if self._is_plain else "bold", ">"), ("", " ")], self._editor)

    async def follow(self, turn: Coroutine[Any, Any, Any]) -> Any:
        self._live = self._make_live()
        with self._live:
            drawing = asyncio.create_task(self._draw_repeatedly())
            try:
                return await super().follow(turn)
            finally:
                drawing.cancel()
                self._end_text()

    async def show(self, chunk: Chunk) -> None:
        """Print a chunk of the turn; a tool call becomes a line with its result."""
        if isinstance(chunk, str):
            self._add(chunk, is_reasoning=False)
            return
        if isinstance(chunk, Reasoning):
            if not self.is_single_question:
                self._add(chunk.text, is_reasoning=True)
            return
        self._end_text()
        if self.is_single_question:
            return
        if isinstance(chunk, ToolCall):
            arguments = json.dumps(chunk.input, ensure_ascii=False, separators=(",", ":"))
            self._calls[chunk.id] = f"{_format_field(chunk.name)} {_format_field(arguments)}"
        elif isinstance(chunk, ToolResult):
            sign = "failed:" if chunk.is_error else "->"
            line = f"{self._calls.get(chunk.id)} {sign} {shorten(chunk.text)}"
            self.print(line, "dim")

    def _add(self, text: str, *, is_reasoning: bool) -> None:
        """Show more text; a blank line separates the reasoning from the reply."""
        if self._block.strip() and is_reasoning != self._is_reasoning:
            self._end_text()
            self._console.print()
        self._is_reasoning = is_reasoning
        self._block += re.sub(CONTROL, "", text)
        self._is_replying = True

    def end_line(self) -> None:
        """Show the cursor again, even if a turn continues after Ctrl-C."""
        self._live.stop()

    def end_reply(self, cost: str) -> None:
        if not self.is_single_question:
            self.print(cost, "dim")

    def _make_live(self) -> Live:
        """Return the area that is redrawn during a turn."""
        return Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=self._is_log_seen,
            redirect_stderr=self._is_log_seen,
        )

    async def _draw_repeatedly(self) -> None:
        """Draw changes and the spinner ten times a second; less often if drawing is slow."""
        drawn = ""
        while True:
            start = time.monotonic()
            if self._block != drawn or not drawn:
                self._draw(find_last_block(self._block))
                drawn = self._block
            await asyncio.sleep(0.1 + 4 * (time.monotonic() - start))

    def _draw(self, end: int) -> None:
        """Print the blocks up to `end`; draw the last block or the spinner below."""
        finished = self._block[:end]
        self._block = self._block[end:]
        with self._console:  # writes once
            if finished.strip():
                self._console.print(self._render(finished), crop=False)
                self._console.print("\n" * bool(self._block), end="")
            is_growing = self._block.strip()
            self._live.update(Tail(self._render(self._block)) if is_growing else self._spinner)
            self._live.refresh()

    def _end_text(self) -> None:
        """Print the remaining text and the pending log lines."""
        self._draw(len(self._block))
        self._is_replying = False
        self.flush()

    def _render(self, markdown: str) -> RenderableType:
        if self._is_reasoning:
            return Text(markdown.strip("\n"), "dim")
        return Text(markdown.strip("\n")) if self._is_plain else Reply(markdown)


def _format_field(text: str) -> str:
    """Shorten text to one line, and escape invisible characters."""
    return shorten(escape_invisible(text))


def find_last_block(markdown: str) -> int:
    """Return the start of the last top-level block."""
    tokens = PARSER.parse(markdown)
    starts = [token.map[0] for token in tokens if token.map and token.level == 0]
    lines = markdown.split("\n")[: max(starts, default=0)]
    return sum(len(line) + 1 for line in lines)


class Code(CodeBlock):
    """Code with whole lines for copying; code in lists wraps."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_wrapped = options.max_width < console.width
        code = Syntax("", self.lexer_name, theme="ansi_dark").highlight(str(self.text))
        code.no_wrap = not is_wrapped
        code.overflow = "fold" if is_wrapped else "ignore"
        code.rstrip()
        yield code


class Cell(TableDataElement):
    """A cell that wraps long words instead of cutting them."""

    def __init__(self, justify: Any) -> None:
        super().__init__(justify)
        self.content.overflow = "fold"


class Reply(Markdown):
    """Markdown that keeps line breaks and shows addresses."""

    elements = Markdown.elements | {
        "fence": Code,
        "code_block": Code,
        "td_open": Cell,
        "th_open": Cell,
    }

    def __init__(self, markdown: str) -> None:
        super().__init__("", justify="default", hyperlinks=False)
        self.parsed = PARSER.parse(markdown)
        if any(token.level > MAX_DEPTH for token in self.parsed):
            self.parsed = [Token("fence", "code", 0, content=markdown)]
        for part in [part for token in self.parsed for part in token.children or []]:
            if part.type == "softbreak":
                part.type = "hardbreak"
            elif part.type == "image":
                part.type = "text"
                part.content += f" ({part.attrs['src']})"
                part.children = None


class Tail:
    """The last lines of text that fit the terminal."""

    def __init__(self, text: RenderableType) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._text, options, pad=False)
        for line in lines[1 - options.max_height :]:
            yield from line
            yield Segment.line()
