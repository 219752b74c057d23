"""Snapshots: the renders of all variants as real files, so that a change of them can be reviewed.

A plain render is kept whole, `<base>+<option>` as the files that the option adds or changes. Of
such a file an earlier folder of the same language may have the very bytes at the same path: then
SAME_AS.txt names that folder, and the file is not kept again. Another vendor of the model replaces
the modules of the first one: LEFT_OUT.txt lists those that it has no use for.
"""

import shutil
import tempfile
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hooks.committed import CommitError, extracted
from hooks.rendering import files_of, render, without_git
from hooks.variants import VARIANTS, answers_of, base_of, language_of

SNAPSHOTS = Path("tests") / "snapshots"
SAME_AS = "SAME_AS.txt"
LEFT_OUT = "LEFT_OUT.txt"


@dataclass(frozen=True)
class File:
    """A file's content, and whether it can be executed: the one part of its mode that Git keeps."""

    content: bytes
    executable: bool

    @property
    def mode(self) -> str:
        """The mode as Git writes it."""
        return "100755" if self.executable else "100644"


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
    """What the snapshots of the template in `root` should be. Raises RenderError, OptionError."""
    return kept(trees(root))


def trees(root: Path, variants: Collection[str] = VARIANTS) -> Trees:
    """Every file that each of the variants renders, by variant. Raises RenderError."""
    with without_git(root) as template, ProcessPoolExecutor() as pool:
        return dict(zip(variants, pool.map(partial(tree, template), variants), strict=True))


def tree(template: Path, variant: str) -> Tree:
    """Every file that one variant renders. Raises RenderError."""
    with tempfile.TemporaryDirectory() as folder:
        render(template, answers_of(variant), Path(folder) / variant)
        return read(Path(folder) / variant)


def kept(whole: Trees) -> Trees:
    """The part of each render that its snapshot holds, from whole renders in their order.

    Raises OptionError when an option other than a vendor removes a file, and edits with it.
    """
    found: Trees = {}
    first: dict[tuple[str, str, File], str] = {}
    for variant, tree in whole.items():
        base = base_of(variant)
        under = whole[base] if base else {}
        removed = sorted(under.keys() - tree.keys())
        if removed and "model" not in VARIANTS.get(variant, {}):
            raise OptionError(
                f"{variant} leaves out {', '.join(removed)}, which {base} has:"
                " an option may add or change files, never remove one"
            )
        found[variant], same = {}, ""
        for path, file in sorted(tree.items()):
            if file == under.get(path):
                continue
            holder = first.setdefault((language_of(variant), path, file), variant)
            if base and holder != variant:
                same += f"{path} = {holder}\n"
            else:
                found[variant][path] = file
        if same:
            found[variant][SAME_AS] = File(same.encode(), False)
        if removed:
            lines = "".join(f"{path}\n" for path in removed)
            found[variant][LEFT_OUT] = File(lines.encode(), False)
    # An option that changes nothing has no folder.
    return {variant: tree for variant, tree in found.items() if tree}


def whole(variant: str, kept: Trees) -> Tree:
    """The render of `variant` that `kept`, of all variants, stands for: the reverse of `kept`."""
    base, own = base_of(variant), dict(kept.get(variant, {}))
    same = own.pop(SAME_AS, File(b"", False)).content.decode()
    links = (line.rsplit(" = ", 1) for line in same.splitlines())
    removed = own.pop(LEFT_OUT, File(b"", False)).content.decode().splitlines()
    under = whole(base, kept) if base else {}
    return {
        **{path: file for path, file in under.items() if path not in removed},
        **{path: kept[holder][path] for path, holder in links},
        **own,
    }


def recorded(root: Path) -> Trees:
    """The snapshots as they are kept, by variant. A file beside the folders counts as one too."""
    folder = root / SNAPSHOTS
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name: read(path) for path in paths}


def committed(root: Path, commit: str) -> Trees:
    """Every file that each variant renders at `commit`, as its snapshots say.

    A variant that has no folder there is like its base. Raises CommitError when the commit has no
    snapshots.
    """
    try:
        with extracted(root, commit, SNAPSHOTS.as_posix()) as folder:
            found = recorded(folder)
        return {variant: whole(variant, found) for variant in {**VARIANTS, **found}}
    except CommitError as error:
        hint = "the tag of a release has none, and the commit before it has"
        reason = f"{commit[:10]} has no snapshots to compare with ({hint}): {error}"
        raise CommitError(reason) from error
    except KeyError as error:
        raise CommitError(f"{commit[:10]} has no file {error}, which a snapshot names") from error


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
            target.chmod(int(file.mode[-3:], 8))
