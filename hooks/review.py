"""The effect of a change of the template on its renders. Each hunk is shown once."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from difflib import unified_diff
from itertools import groupby

from hooks.snapshots import File, Trees

# GitHub drops a step's summary that is over 1 MiB.
MAX_BYTES = 900_000
MAX_HUNK_LINES = 400
FENCE = "`" * 10


@dataclass
class Change:
    """A hunk of a file, or a note about the file, and the renders that have it."""

    path: str
    note: str
    hunk: tuple[str, ...]
    renders: list[str] = field(default_factory=list)


def review(old: Trees, new: Trees) -> list[Change]:
    """Compare two sets of trees, each by variant."""
    by_key: dict[tuple[object, ...], Change] = {}
    for variant in [*new, *sorted(old.keys() - new.keys())]:
        before = old.get(variant, {})
        after = new.get(variant, {})
        for path in sorted(before.keys() | after.keys()):
            count: Counter[object] = Counter()
            for note, hunk in changes(before.get(path), after.get(path)):
                changed = tuple(line for line in hunk[1:] if line[0] != " ")
                # Only the surrounding lines identify a bracket or a blank line.
                is_clear = any(char.isalnum() for line in changed for char in line)
                key = path, note, changed if is_clear else hunk[1:]
                # If a render has a hunk twice, the hunk is shown twice.
                count[key] += 1
                change = by_key.setdefault((*key, count[key]), Change(path, note, hunk))
                change.renders.append(variant)
    return sorted(by_key.values(), key=lambda change: change.path)


def changes(old: File | None, new: File | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the changes of a file: notes, and hunks with their headers."""
    if old == new:
        return
    if new is None:
        yield "removed", ()
        return
    note = "" if old else "added"
    if new.executable != (old.executable if old else False):
        yield f"mode {new.mode}", ()
    hunks: list[list[str]] = []
    for line in list(unified_diff(lines(old), lines(new), lineterm=""))[2:]:
        if line.startswith("@@"):
            hunks.append([])
        hunks[-1].append(line)
    for hunk in hunks:
        yield note, tuple(hunk)
    if not hunks and (old is None or old.content != new.content):
        yield note or "changed in bytes that look the same", ()


def lines(file: File | None) -> list[str]:
    """Return the lines of a file. Invisible line endings are escaped."""
    if file is None or not file.content:
        return []
    text = file.content.decode("utf-8", "backslashreplace").replace("\r", "\\r")
    end = [] if text.endswith("\n") else ["\\ No newline at end of file"]
    return text.removesuffix("\n").split("\n") + end


def markdown(changed: list[Change], everything: Collection[str], against: str) -> str:
    """Return the changes as Markdown. Long hunks and the text after MAX_BYTES are cut.

    `everything` is the collection of compared renders; `against` names the other side.
    """
    count = len({change.path for change in changed})
    summary = f"changed files: {count}" if changed else "no changes"
    text = f"## Changes in the renders\n\n{summary}, against {against}\n"
    for path, group in groupby(changed, lambda change: change.path):
        block = f"\n### `{escaped(path)}`\n"
        for change in group:
            note = f"{change.note}; " if change.note else ""
            block += f"\n{note}{words(change.renders, everything)}\n{fenced(change.hunk)}"
        if len((text + block).encode()) > MAX_BYTES:
            return f"{text}\nTo see the other files, run `python -m hooks review` in a terminal.\n"
        text += block
    return text


def fenced(hunk: tuple[str, ...]) -> str:
    """Return the lines of a hunk as a code block, or an empty text without lines."""
    if not hunk:
        return ""
    body = "".join(f"{escaped(line)}\n" for line in hunk[:MAX_HUNK_LINES])
    cut = len(hunk) - MAX_HUNK_LINES
    more = f"\n… and {cut} more lines\n" if cut > 0 else ""
    return f"\n{FENCE}diff\n{body}{FENCE}\n{more}"


def escaped(text: str) -> str:
    """Return `text` with escapes for invisible characters and terminal controls."""
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def words(renders: Collection[str], everything: Collection[str]) -> str:
    """Name `renders`, a subset of `everything`: "all renders", "every python render", …

    Each part of the text stands only for members of `renders`, so the text is exact.
    """
    if len(renders) == len(everything):
        return "all renders"
    groups: dict[str, set[str]] = {}
    for render in everything:
        target, *options = render.split("+")
        names = [f"{target} (all)", *(f"every {part} render" for part in target.split("-"))]
        names += [f"every render with +{option}" for option in options] or ["every plain render"]
        for name in names:
            groups.setdefault(name, set()).add(render)
    parts: list[str] = []
    left = set(renders)
    for name, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        if group <= set(renders) and len(group & left) > 1:
            parts.append(name)
            left -= group
    return ", ".join(parts + sorted(left))
