"""What YAML parsers disagree on is refused, so that a file means the same wherever it is read."""

from collections.abc import Iterable, Iterator
from typing import Any

from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent, ScalarEvent

from ..contract import well_formed

QUOTES = ("'", '"')


def portable(events: Iterable[Any], text: str) -> Iterator[Any]:
    """The events of a parser for a text. Raises ValueError at what is refused."""
    open: list[Any] = []  # the starts of the collections around
    lines = text.split("\n")
    for event in events:
        if isinstance(event, ScalarEvent):
            _check_scalar(event, text)
            event.value = well_formed(event.value)
        elif isinstance(event, CollectionStartEvent):
            is_bare = event.anchor is None and event.ctag is None
            if event.flow_style and is_bare and text[event.start_mark.index] not in "[{":
                raise ValueError("a pair in a list lacks its braces")
            open.append(event)
        elif isinstance(event, CollectionEndEvent):
            start = open.pop()
            if start.flow_style:
                around = open[-1] if open and not open[-1].flow_style else None
                _check_end(event, text)
                _check_brackets(start, event, around, lines)
        yield event


def _check_scalar(event: ScalarEvent, text: str) -> None:
    if event.style in QUOTES:
        if event.start_mark.line != event.end_mark.line:
            raise ValueError("a quoted text goes over several lines")
        _check_end(event, text)
    elif event.style is None and event.value in ("-", "?", ":"):
        raise ValueError("an indicator stands alone")


def _check_brackets(start: Any, end: Any, around: Any, lines: list[str]) -> None:
    """Lines in brackets are indented more than the block around, but for the closing bracket."""
    if around is None:
        return
    outside = around.start_mark.column
    for number in range(start.start_mark.line + 1, end.end_mark.line + 1):
        inner = lines[number].lstrip(" ")
        column = len(lines[number]) - len(inner)
        is_closing = (number, column + 1) == (end.end_mark.line, end.end_mark.column)
        if inner and inner[0] != "#" and column < outside + (not is_closing):
            raise ValueError("a line in brackets is not indented")


def _check_end(event: Any, text: str) -> None:
    if text.startswith("#", event.end_mark.index):
        raise ValueError("a comment needs a blank before it")
