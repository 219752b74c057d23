"""Snapshots: what each variant renders, kept as real files so that a change of it can be reviewed.

A base variant is kept whole, `<base>+<option>` as the files that the option adds or changes.
"""

import difflib
import shutil
import tempfile
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hooks.rendering import files_of, render, without_git
from hooks.variants import VARIANTS, answers_of, base_of

SNAPSHOTS = Path("tests") / "snapshots"


@dataclass(frozen=True)
class File:
    """A file's content, and whether it can be executed: the one part of its mode that Git keeps."""

    content: bytes
    executable: bool


Tree = dict[str, File]
Trees = dict[str, Tree]


class OptionError(Exception):
    """An option leaves out a file of its base; the text says which."""


def read(folder: Path) -> Tree:
    """Every file under `folder` by its path there."""
    return {
        path.as_posix(): File(file.read_bytes(), bool(file.stat().st_mode & 0o100))
        for path in files_of(folder)
        for file in [folder / path]
    }


def rendered(root: Path) -> Trees:
    """What the snapshots of the template in `root` should be, by variant.

    Raises RenderError, and OptionError: then the files that changed would not say it all.
    """
    return kept(trees(root))


def kept(whole: Trees) -> Trees:
    """The part of each render that its snapshot holds. Raises OptionError."""
    return {variant: changes(variant, whole) for variant in whole}


def trees(root: Path, variants: Collection[str] = VARIANTS, processes: int = 1) -> Trees:
    """Every file that each of the variants renders, by variant. Raises RenderError."""
    with without_git(root) as template:
        if processes == 1:
            return {name: tree(template, name) for name in variants}
        with ProcessPoolExecutor(processes) as pool:
            return dict(zip(variants, pool.map(partial(tree, template), variants), strict=True))


def tree(template: Path, variant: str) -> Tree:
    """Every file that one variant renders. Raises RenderError."""
    with tempfile.TemporaryDirectory() as folder:
        render(template, answers_of(variant), Path(folder) / variant)
        return read(Path(folder) / variant)


def changes(variant: str, whole: Trees) -> Tree:
    """The files of `variant` that are not as in its base; all of them when it has no base."""
    base = base_of(variant)
    if base is None:
        return whole[variant]
    if removed := whole[base].keys() - whole[variant].keys():
        raise OptionError(
            f"{variant} leaves out {', '.join(sorted(removed))}, which {base} has:"
            " an option may add or change files, never remove one"
        )
    return {path: file for path, file in whole[variant].items() if file != whole[base].get(path)}


def recorded(root: Path) -> Trees:
    """The snapshots as they are kept, by variant. A file beside the folders counts as one too."""
    folder = root / SNAPSHOTS
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name: read(path) for path in paths}


def compare(kept: Trees, fresh: Trees) -> list[str]:
    """One text for each difference, with the diff from what is kept to what is rendered now."""
    texts = []
    for variant in sorted(kept.keys() | fresh.keys()):
        if variant not in fresh:
            texts.append(f"{SNAPSHOTS.as_posix()}/{variant}: stale, no variant has that name")
            continue
        old, new = kept.get(variant, {}), fresh[variant]
        for path in sorted(old.keys() | new.keys()):
            if old.get(path) != new.get(path):
                place = f"{SNAPSHOTS.as_posix()}/{variant}/{path}"
                texts.append(difference(place, old.get(path), new.get(path)))
    return texts


def difference(place: str, old: File | None, new: File | None) -> str:
    """What became of one file, and its unified diff."""
    if old is None:
        said = "missing, the render has it"
    elif new is None:
        said = "extra, the render does not have it"
    elif old.content == new.content:
        return f"{place}: mode changed, {mode(old)} -> {mode(new)}"
    elif old.executable != new.executable:
        said = f"content and mode changed, {mode(old)} -> {mode(new)}"
    else:
        said = "content changed"
    diff = difflib.unified_diff(lines(old), lines(new), f"a/{place}", f"b/{place}", lineterm="")
    return "\n".join([f"{place}: {said}", *diff])


def mode(file: File) -> str:
    """A file's mode as Git writes it."""
    return "100755" if file.executable else "100644"


def lines(file: File | None) -> list[str]:
    """The lines to show of a file; line ends that would not show are written out."""
    if file is None:
        return []
    text = file.content.decode("utf-8", "backslashreplace").replace("\r", "\\r")
    end = [] if text.endswith("\n") or not text else ["\\ No newline at end of file"]
    return text.removesuffix("\n").split("\n") + end if text else []


def write(root: Path, trees: Trees) -> None:
    """Replace every snapshot of `root` by `trees`."""
    folder = root / SNAPSHOTS
    if folder.exists():
        shutil.rmtree(folder)
    for variant, tree in trees.items():
        for path, file in tree.items():
            target = folder / variant / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            target.chmod(0o755 if file.executable else 0o644)
