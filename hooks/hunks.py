"""The parts of a file that differ, each a hunk, comparable over the renders that it is in."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cache
from itertools import takewhile

from hooks.snapshots import File, lines, mode

CONTEXT = 3


@dataclass(frozen=True)
class Hunk:
    """Lines that differ, `body`, with the equal ones around them; each with its sign in front.

    `old` and `new` are the numbers of the first lines, counted from 0.
    """

    old: int
    new: int
    before: tuple[str, ...]
    body: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """All lines, from top to bottom."""
        return self.before + self.body + self.after

    @property
    def header(self) -> str:
        """Where it is, as unified diffs say it."""
        old = sum(line[0] != "+" for line in self.lines)
        new = sum(line[0] != "-" for line in self.lines)
        return f"@@ -{self.old + bool(old)},{old} +{self.new + bool(new)},{new} @@"


@dataclass(frozen=True)
class Piece:
    """One thing that became of a file: a hunk, or what is told in words."""

    said: str
    hunk: Hunk | None = None


@cache
def pieces(old: File | None, new: File | None) -> tuple[Piece, ...]:
    """What became of a file, all of it: nothing only where both are equal."""
    if new is None:
        return (Piece("removed"),)
    if old is None:
        said = "added, executable" if new.executable else "added"
        if not new.content or b"\0" in new.content:
            return (Piece(f"{said}: {what(new)}"),)
        body = tuple(f"+{line}" for line in lines(new))
        return (Piece(said, Hunk(0, 0, (), body, ())),)
    found = []
    if old.executable != new.executable:
        found.append(Piece(f"mode {mode(old)} -> {mode(new)}"))
    if old.content != new.content:
        binary = b"\0" in old.content + new.content
        hunks = [] if binary else [Piece("", hunk) for hunk in compare(lines(old), lines(new))]
        # Two lines that are shown alike may still differ: an escape, and the same written out.
        found += hunks or [Piece(f"changed: {what(old)} -> {what(new)}")]
    return tuple(found)


def what(file: File) -> str:
    """Words for a content that cannot be shown, other words for every other content."""
    if not file.content:
        return "empty"
    return f"{len(file.content)} bytes ({hashlib.sha256(file.content).hexdigest()[:8]})"


def compare(old: list[str], new: list[str]) -> Iterator[Hunk]:
    """The hunks between two texts."""
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT):
        body: list[str] = []
        for tag, start, end, new_start, new_end in group:
            if tag == "equal":
                body += [f" {line}" for line in old[start:end]]
                continue
            body += [f"-{line}" for line in old[start:end]]
            body += [f"+{line}" for line in new[new_start:new_end]]
        first, last = group[0], group[-1]
        top = first[2] - first[1] if first[0] == "equal" else 0
        bottom = len(body) - (last[2] - last[1] if last[0] == "equal" else 0)
        sides = tuple(body[:top]), tuple(body[top:bottom]), tuple(body[bottom:])
        yield Hunk(first[1], first[3], *sides)


def common(one: Hunk, other: Hunk) -> Hunk | None:
    """`one` with only the context that `other` has too; None when they are not the same change.

    A file may differ between two renders right beside the lines that change in both.
    """
    before = start(one.before[::-1], other.before[::-1])[::-1]
    after = start(one.after, other.after)
    gone = len(one.before) - len(before)
    hunk = replace(one, old=one.old + gone, new=one.new + gone, before=before, after=after)
    # Of a blank line or a bracket only what is around it tells which one it is.
    told = (one.before, one.after) == (other.before, other.after)
    told = told or any(char.isalnum() for line in hunk.lines for char in line)
    return hunk if told and one.body == other.body else None


def start(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """The lines that both begin with."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(line for line, _ in pairs)
