"""A review as Markdown for a pull request, or as text for a terminal."""

import re
from collections.abc import Iterator
from itertools import groupby

import click

from hooks.hunks import Hunk
from hooks.naming import words
from hooks.review import Change, Review

# GitHub drops a step's summary that is over 1 MiB; the step may have more to say.
LIMIT = 900_000
LONGEST_HUNK = 400
NAMED = 20
COLOURS = {"-": "red", "+": "green"}


def shown(text: str) -> str:
    """`text` with all written out that would not show, or act on a terminal."""
    return "".join(
        char
        if char.isprintable() or char == "\t"
        else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def code(text: str) -> str:
    """`text` as code in a line of Markdown, backticks in it or not."""
    ticks = "`" * (longest_ticks(text) + 1)
    space = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{ticks}{space}{shown(text)}{space}{ticks}"


def longest_ticks(text: str) -> int:
    """How many backticks stand in a row in `text`, at most."""
    return max(map(len, re.findall("`+", text)), default=0)


def sentence(review: Review, against: str) -> str:
    """What the review found, in a line. `against` is what was compared with."""
    count = f"renders compared with {against}: {len(review.compared)}"
    if not review:
        return f"nothing changes; {count}"
    hunks = sum(change.piece.hunk is not None for change in review.changes)
    files = len({change.path for change in review.changes})
    return f"files that change: {files}, hunks: {hunks}; {count}"


def whole_renders(review: Review) -> Iterator[tuple[str, str]]:
    """The renders that are on one side only, and what is said of them."""
    for variant, said in review.added.items():
        yield variant, f"a new render, {said}"
    for variant in review.removed:
        yield variant, "no longer rendered"


def markdown(review: Review, against: str, limit: int = LIMIT) -> str:
    """The review as Markdown of at most `limit` bytes, with what is left off for that at its end.

    Hunks that are too long to be read there are cut.
    """
    blocks = [("", f"## What changes in the renders\n\n{shown(sentence(review, against))}\n")]
    for variant, said in whole_renders(review):
        blocks.append((variant, f"\n- {code(variant)}: {shown(said)}\n"))
    for path, changes in groupby(review.changes, lambda change: change.path):
        title = f"\n### {code(path)}\n"
        for change in changes:
            blocks.append((path, title + markdown_change(change, review)))
            title = ""
    room = limit - 10_000
    kept: list[str] = []
    left: list[str] = []
    for path, block in blocks:
        size = len(block.encode("utf-8"))
        # What follows a heading that is left off would stand below another.
        if size > room or path in left[-1:]:
            left.append(path)
        else:
            kept.append(block)
            room -= size
    if left:
        names = [name for name in map(code, dict.fromkeys(left)) if len(name.encode()) < 300]
        more = ["…"] if len(names) > NAMED or not names else []
        kept.append(
            "\n**Left off, as a summary has to be short:** changes:"
            f" {len(left)}, in {', '.join(names[:NAMED] + more)}\n\n"
            "`python -m hooks review` shows them on a terminal.\n"
        )
    return "".join(kept)


def markdown_change(change: Change, review: Review) -> str:
    """One change: the renders that have it, what is said of it, and its lines."""
    text = f"\n{told(change, review)}\n"
    if (hunk := change.piece.hunk) is None:
        return text
    lines = [shown(line) for line in hunk.lines]
    cut = len(lines) - LONGEST_HUNK
    fence = "`" * max(3, max(longest_ticks(line) for line in lines) + 1)
    body = "\n".join([hunk.header, *lines[:LONGEST_HUNK]])
    more = f"\n… and {cut} lines more\n" if cut > 0 else ""
    return f"{text}\n{fence}diff\n{body}\n{fence}\n{more}"


def told(change: Change, review: Review) -> str:
    """What is said of a change in front of its lines."""
    said = f"{shown(change.piece.said)}; " if change.piece.said else ""
    return said + words(change.renders, review.compared)


def terminal(review: Review, against: str) -> str:
    """The review as text with colours; click drops these where no terminal is."""
    text = [shown(sentence(review, against))]
    text += [f"{click.style(name, bold=True)} {said}" for name, said in whole_renders(review)]
    for path, changes in groupby(review.changes, lambda change: change.path):
        text.append(f"\n{click.style(shown(path), bold=True)}")
        for change in changes:
            text.append(click.style(f"  {told(change, review)}", fg="cyan"))
            text += coloured(change.piece.hunk)
    return "\n".join(text)


def coloured(hunk: Hunk | None) -> Iterator[str]:
    """The lines of a hunk as a terminal shows them."""
    if hunk is not None:
        yield click.style(hunk.header, dim=True)
        for line in hunk.lines:
            colour = COLOURS.get(line[0])
            yield click.style(shown(line), fg=colour) if colour else shown(line)
