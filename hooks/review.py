"""What a change of the template changes in its renders, each hunk once for all that have it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from hooks.hunks import Piece, common, pieces
from hooks.snapshots import Tree, Trees
from hooks.variants import base_of


@dataclass
class Change:
    """One piece of a file, and the renders that have it."""

    path: str
    piece: Piece
    renders: list[str]


@dataclass
class Review:
    """All that changes.

    `compared` are the renders on both sides; `added` says of each new one what it consists of.
    """

    compared: list[str]
    changes: list[Change]
    added: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return bool(self.changes or self.added or self.removed)


def review(old: Trees, new: Trees) -> Review:
    """Compare the renders of two templates, whole trees by variant."""
    compared = [variant for variant in new if variant in old]
    changes: list[Change] = []
    # By all that must be equal but for the context, so that few are tried for each piece.
    alike: dict[tuple[object, ...], list[Change]] = {}
    for variant in compared:
        for path, piece in between(old[variant], new[variant]):
            key = path, piece.said, piece.hunk and piece.hunk.body
            if not joined(alike.setdefault(key, []), piece, variant):
                alike[key].append(Change(path, piece, [variant]))
                changes.append(alike[key][-1])
    changes.sort(key=lambda change: (change.path, place(change.piece)))
    return Review(
        compared,
        changes,
        added={variant: consists(variant, new) for variant in new if variant not in old},
        removed=sorted(old.keys() - new.keys()),
    )


def joined(known: list[Change], piece: Piece, variant: str) -> bool:
    """Whether one of `known` is what `piece` is; it then stands for `variant` too.

    What is there twice in one render is shown twice.
    """
    found: list[tuple[int, Change, Piece]] = []
    for change in known:
        both = piece.hunk and change.piece.hunk and common(change.piece.hunk, piece.hunk)
        if variant not in change.renders and (both or piece.hunk is None):
            found.append((len(both.lines) if both else 0, change, Piece(piece.said, both)))
    if not found:
        return False
    # The more of the context is equal, the surer it is the same place.
    _, change, change.piece = max(found, key=lambda one: one[0])
    change.renders.append(variant)
    return True


def place(piece: Piece) -> tuple[int, str]:
    """Where a piece is shown among those of its file: words first, then from top to bottom."""
    return (-1 if piece.hunk is None else piece.hunk.new), piece.said


def between(old: Tree, new: Tree) -> Iterator[tuple[str, Piece]]:
    """What changes in one render, with the path that it changes."""
    moved = renames(old, new)
    for path in sorted(old.keys() | new.keys()):
        if path in moved:
            yield path, Piece(f"renamed from {moved[path]}")
        elif path not in moved.values() and old.get(path) != new.get(path):
            for piece in pieces(old.get(path), new.get(path)):
                yield path, piece


def renames(old: Tree, new: Tree) -> dict[str, str]:
    """The new paths that hold exactly what one path held that is gone, and that path."""
    gone = [path for path in old if path not in new]
    came = [path for path in new if path not in old and new[path].content]
    # A file that is there more than once moved nowhere that could be told.
    held, holds = Counter(old[path] for path in gone), Counter(new[path] for path in came)
    return {
        path: other
        for path in came
        for other in gone
        if new[path] == old[other] and held[old[other]] == holds[new[path]] == 1
    }


def consists(variant: str, trees: Trees) -> str:
    """What a new render is, by the names of its files only: the rest is its base's."""
    tree, base = trees[variant], base_of(variant)
    if base is None or base not in trees:
        return f"files: {len(tree)}"
    there = {folder for path in trees[base] for folder in PurePosixPath(path).parents}
    came = (tops(path, there) for path in sorted(tree.keys() - trees[base].keys()))
    names = {
        "adds": list(dict.fromkeys(came)),
        "changes": sorted(p for p in tree if p in trees[base] and tree[p] != trees[base][p]),
        "leaves out": sorted(trees[base].keys() - tree.keys()),
    }
    parts = [f"{verb} {', '.join(paths)}" for verb, paths in names.items() if paths]
    return f"compared with {base} {'; '.join(parts) or 'the same'}"


def tops(path: str, there: set[PurePosixPath]) -> str:
    """The folder that comes with `path`, or `path` itself where its folder is among `there`."""
    folders = [folder for folder in PurePosixPath(path).parents if folder not in there]
    return f"{folders[-1]}/" if folders else path
