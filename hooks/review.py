"""What a change of the template changes in its renders, each hunk once for all that have it."""

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
    """One hunk of a file, or a note on it, and the renders that have it."""

    path: str
    note: str
    hunk: tuple[str, ...]
    renders: list[str] = field(default_factory=list)


def review(old: Trees, new: Trees) -> list[Change]:
    """Compare two sets of trees, each by variant."""
    found: dict[tuple[object, ...], Change] = {}
    for variant in [*new, *sorted(old.keys() - new.keys())]:
        before, after = old.get(variant, {}), new.get(variant, {})
        for path in sorted(before.keys() | after.keys()):
            count: Counter[object] = Counter()
            for note, hunk in changes(before.get(path), after.get(path)):
                changed = tuple(line for line in hunk[1:] if line[0] != " ")
                # A bracket or a blank line is identified only by what is around it.
                is_clear = any(char.isalnum() for line in changed for char in line)
                key = path, note, changed if is_clear else hunk[1:]
                # A hunk that one render has twice is shown twice.
                count[key] += 1
                change = found.setdefault((*key, count[key]), Change(path, note, hunk))
                change.renders.append(variant)
    return sorted(found.values(), key=lambda change: change.path)


def changes(old: File | None, new: File | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """How a file changed: notes, and hunks with their headers; nothing where both are equal."""
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
    """The lines to show of a file; line ends that would not show are written out."""
    if file is None or not file.content:
        return []
    text = file.content.decode("utf-8", "backslashreplace").replace("\r", "\\r")
    end = [] if text.endswith("\n") else ["\\ No newline at end of file"]
    return text.removesuffix("\n").split("\n") + end


def markdown(found: list[Change], everything: Collection[str], against: str) -> str:
    """The changes as Markdown; too long hunks are cut, and what is over MAX_BYTES is left off.

    `everything` are the renders that were compared, `against` names what they were compared with.
    """
    count = len({change.path for change in found})
    summary = f"files that change: {count}" if found else "nothing changes"
    text = f"## What changes in the renders\n\n{summary}, against {against}\n"
    for path, group in groupby(found, lambda change: change.path):
        block = f"\n### `{shown(path)}`\n"
        for change in group:
            note = f"{change.note}; " if change.note else ""
            block += f"\n{note}{words(change.renders, everything)}\n{fenced(change.hunk)}"
        if len((text + block).encode()) > MAX_BYTES:
            return f"{text}\nThe rest is left off: run `python -m hooks review` in a terminal.\n"
        text += block
    return text


def fenced(hunk: tuple[str, ...]) -> str:
    """The lines of a hunk as a block of code; nothing where it has none."""
    if not hunk:
        return ""
    body = "".join(f"{shown(line)}\n" for line in hunk[:MAX_HUNK_LINES])
    cut = len(hunk) - MAX_HUNK_LINES
    more = f"\n… and {cut} lines more\n" if cut > 0 else ""
    return f"\n{FENCE}diff\n{body}{FENCE}\n{more}"


def shown(text: str) -> str:
    """`text` with all characters escaped that would not show, or act on a terminal."""
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def words(renders: Collection[str], everything: Collection[str]) -> str:
    """Name `renders`, which are some of `everything`: "all renders", "every python render", …

    Each part of the text stands for renders that are all meant, so the text is exact.
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
    found, left = [], set(renders)
    for name, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        if group <= set(renders) and len(group & left) > 1:
            found.append(name)
            left -= group
    return ", ".join(found + sorted(left))
