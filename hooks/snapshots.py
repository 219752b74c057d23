"""Snapshots: the renders of all variants as files, so that their changes can be reviewed.

The folder of a plain render has all its files. `<base>+<option>` has the files that the option adds
or changes. Files that are not stored:

- COPIED.txt lists the sources in `template/` of files without Jinja, which Copier copies unchanged.
- SAME_AS.txt lists files that an earlier folder of the same language has at the same path.
- LEFT_OUT.txt lists modules of the base that another model vendor does not need.
"""

import shutil
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from hooks.committed import CommitError, extracted
from hooks.rendering import files_of, render, without_git
from hooks.template import FILES, SUFFIX
from hooks.variants import PROJECT_NAME, VARIANTS, answers_of, base_of, language_of
from hooks.workers import started

SNAPSHOTS = Path("tests") / "snapshots"
PACKAGE = PROJECT_NAME.replace("-", "_")
COPIED = "COPIED.txt"
SAME_AS = "SAME_AS.txt"
LEFT_OUT = "LEFT_OUT.txt"


@dataclass(frozen=True)
class File:
    """A file's content, and its executable bit, the only part of the mode that Git stores."""

    content: bytes
    executable: bool

    @property
    def mode(self) -> str:
        """Return the mode in Git's notation."""
        return "100755" if self.executable else "100644"


Tree = dict[str, File]
Trees = dict[str, Tree]


class OptionError(Exception):
    """An option removes a file of its base. The text names the file."""


def read(folder: Path) -> Tree:
    """Return the files of `folder` by relative path."""
    return {
        path.as_posix(): File(file.read_bytes(), bool(file.stat().st_mode & 0o100))
        for path in files_of(folder)
        for file in [folder / path]
    }


def sources(root: Path) -> Tree:
    """Return the files of `template/` that Copier copies unchanged, by relative path."""
    tree = read(root / FILES)
    return {path: file for path, file in tree.items() if not path.endswith(SUFFIX)}


def destination(source: str) -> str:
    """Return the path of a file of `template/` in a render. Its first folder is the language."""
    _, *parts = PurePosixPath(source).parts
    while len(parts) > 1 and parts[0].startswith("{{"):  # the folder of an answer
        parts.pop(0)
    return "/".join(parts).replace("{{ package_name }}", PACKAGE)


def rendered(root: Path) -> Trees:
    """Return the correct snapshots of the template in `root`. Raises RenderError, OptionError."""
    return kept(trees(root), sources(root))


def trees(root: Path, variants: Collection[str] = VARIANTS) -> Trees:
    """Return all files of each variant. Raises RenderError."""
    rows = [answers_of(variant) for variant in variants]
    with without_git(root) as template, started(partial(tree, template), rows) as renders:
        return dict(zip(variants, renders, strict=True))


def tree(template: Path, answers: dict[str, Any]) -> Tree:
    """Return all files of a render. Raises RenderError."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / PROJECT_NAME
        render(template, answers, project)
        return read(project)


def kept(whole: Trees, sources: Tree) -> Trees:
    """Return the snapshots of whole renders, which are in the order of VARIANTS.

    Raises OptionError if an option, other than a model vendor, removes a file.
    """
    parts: Trees = {}
    first: dict[tuple[str, str, File], str] = {}
    origins = {
        (source.partition("/")[0], destination(source), file): source
        for source, file in sources.items()
    }
    for variant, tree in whole.items():
        base = base_of(variant)
        under = whole[base] if base else {}
        removed = sorted(under.keys() - tree.keys())
        if removed and "model" not in VARIANTS.get(variant, {}):
            raise OptionError(
                f"{variant} leaves out {', '.join(removed)}, which {base} has:"
                " an option may add or change files, but not remove them"
            )
        language = language_of(variant)
        parts[variant] = {}
        copied = ""
        same = ""
        for path, file in sorted(tree.items()):
            if file == under.get(path):
                continue
            if origin := origins.get((language, path, file)):
                copied += f"{origin}\n"
                continue
            holder = first.setdefault((language, path, file), variant)
            if base and holder != variant:
                same += f"{path} = {holder}\n"
            else:
                parts[variant][path] = file
        if copied:
            parts[variant][COPIED] = File(copied.encode(), False)
        if same:
            parts[variant][SAME_AS] = File(same.encode(), False)
        if removed:
            lines = "".join(f"{path}\n" for path in removed)
            parts[variant][LEFT_OUT] = File(lines.encode(), False)
    # An option that changes nothing has no folder.
    return {variant: tree for variant, tree in parts.items() if tree}


def whole(variant: str, kept: Trees, sources: Tree) -> Tree:
    """Return the whole render of `variant` from the snapshots of all variants."""
    base = base_of(variant)
    own = dict(kept.get(variant, {}))
    copied = own.pop(COPIED, File(b"", False)).content.decode().splitlines()
    same = own.pop(SAME_AS, File(b"", False)).content.decode()
    links = (line.rsplit(" = ", 1) for line in same.splitlines())
    removed = own.pop(LEFT_OUT, File(b"", False)).content.decode().splitlines()
    under = whole(base, kept, sources) if base else {}
    return {
        **{path: file for path, file in under.items() if path not in removed},
        **{destination(source): sources[source] for source in copied},
        **{path: kept[holder][path] for path, holder in links},
        **own,
    }


def recorded(root: Path) -> Trees:
    """Return the stored snapshots by variant. A file beside the folders counts as a variant."""
    folder = root / SNAPSHOTS
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name: read(path) for path in paths}


def recorded_whole(root: Path) -> Trees:
    """Return all files of each variant from the snapshots, without rendering.

    A variant without a folder equals its base. Raises KeyError if a file is missing.
    """
    parts = recorded(root)
    origins = sources(root)
    return {variant: whole(variant, parts, origins) for variant in {**VARIANTS, **parts}}


def committed(root: Path, commit: str) -> Trees:
    """Return all files of each variant from the snapshots at `commit`.

    Raises CommitError if the commit has no snapshots.
    """
    try:
        with extracted(root, commit, SNAPSHOTS.as_posix(), FILES) as folder:
            return recorded_whole(folder)
    except CommitError as error:
        hint = "the tag of a release lacks them; compare with the commit before it"
        reason = f"{commit[:10]} has no snapshots to compare with ({hint}): {error}"
        raise CommitError(reason) from error
    except KeyError as error:
        raise CommitError(f"{commit[:10]} has no file {error}, which a snapshot names") from error


def write(root: Path, trees: Trees) -> None:
    """Replace all snapshots of `root` with `trees`."""
    folder = root / SNAPSHOTS
    if folder.exists():
        shutil.rmtree(folder)
    for variant, tree in trees.items():
        for path, file in tree.items():
            target = folder / variant / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            target.chmod(int(file.mode[-3:], 8))
