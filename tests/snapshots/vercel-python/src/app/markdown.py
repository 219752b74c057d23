"""Markdown as it streams: bold, code, headings and lists, in words that are wrapped whole."""

import re
import sys
from collections.abc import Callable
from functools import cache
from itertools import groupby
from unicodedata import category, east_asian_width

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
