"""Snapshots: the renders of all variants as real files, so that a change of them can be reviewed.

The folder of a plain render has all its files, `<base>+<option>` the files that the option adds or
changes. Copier copies a file without Jinja from `template/` as it is: COPIED.txt names its source,
whose own diff shows a change. An earlier folder of the same language may have the very bytes at the
same path: then SAME_AS.txt names that folder, and the file is not kept again. Another vendor of the
model replaces the modules of the first one: LEFT_OUT.txt lists those that it has no use for.
"""

import shutil
import tempfile
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from hooks.committed import CommitError, extracted
from hooks.rendering import files_of, render, without_git
from hooks.template import FILES, SUFFIX
from hooks.variants import PROJECT_NAME, VARIANTS, answers_of, base_of, language_of

SNAPSHOTS = Path("tests") / "snapshots"
PACKAGE = PROJECT_NAME.replace("-", "_")
COPIED = "COPIED.txt"
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


def sources(root: Path) -> Tree:
    """The files of `template/` that Copier copies as they are, by their path there."""
    tree = read(root / FILES)
    return {path: file for path, file in tree.items() if not path.endswith(SUFFIX)}


def destination(source: str) -> str:
    """The path in a render of a file of `template/`: its first folder has the language."""
    _, *parts = PurePosixPath(source).parts
    while len(parts) > 1 and parts[0].startswith("{{"):  # the folder of an answer
        parts.pop(0)
    return "/".join(parts).replace("{{ package_name }}", PACKAGE)


def rendered(root: Path) -> Trees:
    """What the snapshots of the template in `root` should be. Raises RenderError, OptionError."""
    return kept(trees(root), sources(root))


def trees(root: Path, variants: Collection[str] = VARIANTS) -> Trees:
    """Every file that each of the variants renders, by variant. Raises RenderError."""
    with without_git(root) as template, ProcessPoolExecutor() as pool:
        return dict(zip(variants, pool.map(partial(tree, template), variants), strict=True))


def tree(template: Path, variant: str) -> Tree:
    """Every file that one variant renders. Raises RenderError."""
    with tempfile.TemporaryDirectory() as folder:
        render(template, answers_of(variant), Path(folder) / variant)
        return read(Path(folder) / variant)


def kept(whole: Trees, sources: Tree) -> Trees:
    """The part of each render that its snapshot holds, from whole renders in their order.

    Raises OptionError when an option other than a vendor removes a file, and edits with it.
    """
    found: Trees = {}
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
                " an option may add or change files, never remove one"
            )
        language = language_of(variant)
        found[variant] = {}
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
                found[variant][path] = file
        if copied:
            found[variant][COPIED] = File(copied.encode(), False)
        if same:
            found[variant][SAME_AS] = File(same.encode(), False)
        if removed:
            lines = "".join(f"{path}\n" for path in removed)
            found[variant][LEFT_OUT] = File(lines.encode(), False)
    # An option that changes nothing has no folder.
    return {variant: tree for variant, tree in found.items() if tree}


def whole(variant: str, kept: Trees, sources: Tree) -> Tree:
    """The render of `variant` that `kept`, of all variants, stands for: the reverse of `kept`."""
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
    """The snapshots as they are kept, by variant. A file beside the folders counts as one too."""
    folder = root / SNAPSHOTS
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name: read(path) for path in paths}


def recorded_whole(root: Path) -> Trees:
    """Every file that each variant renders, as the snapshots say: nothing is rendered.

    A variant that has no folder is like its base. Raises KeyError when a file is missing.
    """
    found = recorded(root)
    origins = sources(root)
    return {variant: whole(variant, found, origins) for variant in {**VARIANTS, **found}}


def committed(root: Path, commit: str) -> Trees:
    """Every file that each variant renders at `commit`, as its snapshots say.

    Raises CommitError when the commit has no snapshots.
    """
    try:
        with extracted(root, commit, SNAPSHOTS.as_posix(), FILES) as folder:
            return recorded_whole(folder)
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
