"""Why a text is no YAML, and in which line: told from its lines, since parsers tell it apart."""

import re

from .brackets import QUOTED, Brackets
from .yaml_core import Wrong

KEY = re.compile(rf"""(?:(?:{QUOTED}) *|[^ "'#\[\]{{}}|>@`%,].*?):(?= |$)""")
DASH = re.compile("-( +|$)")
MARKS = re.compile("([&*!][^ ]* *)*")
BLOCK = re.compile("[|>][-+1-9]{0,2}( +(#.*)?)?$")
RESERVED = re.compile(r"[\]},%@`]|[-?:]( |$)|.*:( |$)")


def broken(text: str) -> Wrong:
    """What is wrong with a text that a parser refuses: the first line that breaks a rule."""
    lines = Lines()
    for number, line in enumerate(text.split("\n"), 2):
        rule = lines.read(line, number)
        if rule == "E0D4":
            break
        if rule:
            return f"AML-{rule}", number, {}
    if lines.brackets.open:
        bracket, number = lines.brackets.open[-1]
        return "AML-E0D4", number, {"name": bracket}
    return "AML-E002", 1, {}


class Lines:
    """Reads lines of YAML one after the other."""

    def __init__(self) -> None:
        self.brackets = Brackets()
        self._columns = [0]  # where the mappings and lists around start
        self._kinds = {0: ""}  # of each column: key, item, or a list right under its key: both
        self._block: int | None = None  # lines that start behind this column are a text
        self._least = 0  # where that text starts itself, if it had a line
        self._last = "none"  # what the value of the line above is: none, plain or whole

    def read(self, line: str, number: int) -> str | None:
        """The rule that one more line breaks."""
        start = len(line) - len(line.lstrip(" "))
        if line[start:][:1] in ("", "#"):
            return None
        if self._block is not None and start > self._block:
            self._least = self._least or start
            return None if start >= self._least else "E0D5"
        self._block = None
        if self.brackets.open:
            is_inside = start > self._columns[-1] or line[start] in "]}"
            return self.brackets.read(line, start, number) if is_inside else "E0D4"
        is_deeper = start > self._columns[-1]
        if is_deeper and self._last == "plain" and not KEY.match(line, start):
            return None  # the text of the line above goes on
        while start < self._columns[-1]:
            del self._kinds[self._columns.pop()]
        if start > self._columns[-1]:
            if not is_deeper or self._last != "none":
                return "E0D5"
            self._open(start)
        return self._entry(line, start, number)

    def _open(self, column: int) -> None:
        self._columns.append(column)
        self._kinds[column] = ""

    def _is_misplaced(self, column: int, kind: str) -> bool:
        """Whether a key stands among items, or an item among keys."""
        known = self._kinds[column]
        is_under = kind == "item" and known == "key" and self._last == "none"
        is_behind = kind == "key" and known == "both"
        if known in ("", kind) or is_under or is_behind:
            self._kinds[column] = "both" if is_under else kind
            return False
        return not (kind == "item" and known == "both")

    def _entry(self, line: str, start: int, number: int) -> str | None:
        outside, is_item = start, False
        while dash := DASH.match(line, start):
            if self._is_misplaced(start, "item"):
                return "E0D5"
            outside, is_item, start = start, True, dash.end()
            self._open(start)
        if key := KEY.match(line, start):
            if self._is_misplaced(start, "key"):
                return "E0D5"
            outside, start = start, key.end()
        elif not is_item and line[start] not in "[{\"'":
            if self._kinds[start] or start == 0:
                return "E002"
            del self._kinds[self._columns.pop()]  # the text of the key above
        start += len(line[start:]) - len(line[start:].lstrip(" "))
        if marks := MARKS.match(line, start):
            start = marks.end()
        value = line[start:].split(" #")[0].rstrip(" ")
        self._last = "none" if value[:1] in ("", "#") else "whole"
        if value[:1] in ("|", ">"):
            self._block, self._least = outside, int(value[1:2].isdigit() or value[2:3].isdigit())
            return None if BLOCK.match(line, start) else "E002"
        if self._last == "none" or value[0] in "[{\"'":
            return self.brackets.read(line, start, number)
        self._last = "plain" if line.rstrip(" ").endswith(value) else "whole"
        return "E0D6" if RESERVED.match(value) else None
