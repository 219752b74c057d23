"""YAML 1.2 core: the values of a text, the line of each key, and what is refused in it."""

import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    MappingStartEvent,
    ScalarEvent,
)

from .portable import portable

LEVELS = 32
# Where a value stands: keys of mappings and places in lists, from the top.
Where = tuple[str | int, ...]
# A rule's id, a line, and the names in its message.
Wrong = tuple[str, int, dict[str, Any]]

CONSTANTS: dict[str, Any] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
CONSTANTS |= dict.fromkeys(("true", "True", "TRUE"), True)
CONSTANTS |= dict.fromkeys(("false", "False", "FALSE"), False)
BASED = re.compile("0o[0-7]+|0x[0-9a-fA-F]+")
WHOLE = re.compile("[-+]?[0-9]{1,18}")
DECIMAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
NO_DECIMAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def scalar(text: str) -> Any:
    """The value of a plain scalar: there are no dates, and `yes` and `010` mean nothing special."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    if BASED.fullmatch(text):
        return int(text, 0) if len(text) < 250 else float("inf")
    if WHOLE.fullmatch(text):
        return int(text)
    if DECIMAL.fullmatch(text):
        return float(text)
    return float(text.replace(".", "")) if NO_DECIMAL.fullmatch(text) else text


class Reader:
    """Reads one document from the parser's events, which alone show anchors and aliases.

    `lines` has where each key and item stands, the text starting in line 2 of its file; `texts`
    has the scalars as they are written; `wrong` has what is refused.
    """

    def __init__(self, text: str) -> None:
        self.lines: dict[Where, int] = {(): 1}
        self.texts: dict[Where, str] = {}
        self.wrong: list[Wrong] = []
        self._events: Iterator[Any] = portable(YAML(typ="safe", pure=True).parse(text), text)

    def read(self) -> Any:
        """The value of the document. Raises RecursionError, and what the parser raises."""
        next(self._events)  # the start of the stream
        has_document = isinstance(next(self._events), DocumentStartEvent)
        value = self._node(next(self._events), (), 1) if has_document else None
        list(self._events)  # an error may still come
        return value

    def _node(self, event: Any, where: Where, level: int) -> Any:
        if level > LEVELS:
            raise RecursionError
        if isinstance(event, AliasEvent) or event.anchor is not None:
            self._refuse("E007", where)
        elif event.ctag is not None:
            self._refuse("E008", where)
        if isinstance(event, MappingStartEvent):
            return self._mapping(where, level)
        if isinstance(event, CollectionStartEvent):
            return self._items(where, level)
        if isinstance(event, AliasEvent):
            return None
        self.texts[where] = event.value
        return scalar(event.value) if event.style is None else event.value

    def _items(self, where: Where, level: int) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := next(self._events), CollectionEndEvent):
            here = (*where, len(values))
            is_empty = isinstance(event, ScalarEvent) and event.value == ""
            self.lines[here] = self.lines[where] if is_empty else event.start_mark.line + 2
            values.append(self._node(event, here, level + 1))
        return values

    def _mapping(self, where: Where, level: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := next(self._events), CollectionEndEvent):
            line = event.start_mark.line + 2
            if id := self._wrong_key(event, values):
                self.wrong.append((id, line, {"name": getattr(event, "value", "")}))
                self._skip(event, level)
                self._skip(next(self._events), level)
            else:
                here = (*where, event.value)
                self.lines[here] = line
                values[event.value] = self._node(next(self._events), here, level + 1)
        return values

    def _refuse(self, rule: str, where: Where) -> None:
        self.wrong.append((f"AML-{rule}", self.lines[where], {}))

    def _wrong_key(self, event: Any, values: dict[str, Any]) -> str | None:
        if isinstance(event, AliasEvent) or event.anchor is not None:
            return "AML-E007"
        if event.ctag is not None:
            return "AML-E008"
        if not isinstance(event, ScalarEvent):
            return "AML-E00A"
        if event.style is None and event.value == "<<":
            return "AML-E009"
        if event.style is None and not isinstance(scalar(event.value), str):
            return "AML-E00A"
        return "AML-E006" if event.value in values else None

    def _skip(self, event: Any, above: int) -> None:
        level = above
        while True:
            level += isinstance(event, CollectionStartEvent)
            level -= isinstance(event, CollectionEndEvent)
            if level == above:
                return
            if level > LEVELS:
                raise RecursionError
            event = next(self._events)
