"""What a commit's template renders: the snapshots that it keeps, read from Git's own store."""

import os
import subprocess
from io import BytesIO
from pathlib import Path, PurePosixPath

from hooks.snapshots import SNAPSHOTS, File, Tree, Trees
from hooks.variants import base_of

SHALLOW = "; this clone is shallow, so fetch more of it: git fetch --unshallow"


class CommitError(Exception):
    """There is nothing to compare with; the text is one line that says why."""


def git(root: Path, *arguments: str, input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run git in `root`. Raises CommitError when there is no git."""
    try:
        return subprocess.run(["git", *arguments], cwd=root, input=input, capture_output=True)
    except FileNotFoundError as error:
        raise CommitError("git is not installed, and the review asks it for REF") from error


def read_or_refuse(root: Path, *arguments: str, input: bytes = b"") -> bytes:
    """What git prints. Raises CommitError with git's own words when it fails."""
    result = git(root, *arguments, input=input)
    if result.returncode:
        said = " ".join(result.stderr.decode("utf-8", "backslashreplace").split())
        raise CommitError(f"git {arguments[0]}: {said or result.returncode}")
    return result.stdout


def resolve(root: Path, ref: str) -> str:
    """The full id of the commit that `ref` names.

    Raises CommitError when it names none, or `root` is in no Git repository.
    """
    shallow = read_or_refuse(root, "rev-parse", "--is-shallow-repository").strip() == b"true"
    # No name of a commit starts with a dash, and what does is an option to git.
    asked = ("rev-parse", "-q", "--verify", f"{ref}^0")
    found = b"" if ref.startswith("-") else git(root, *asked).stdout.strip()
    # Of `^main`, all but main, git makes `^<id>`.
    if not found.isalnum():
        raise CommitError(f"{ref!r} names no commit here{SHALLOW if shallow else ''}")
    return found.decode()


def committed(root: Path, commit: str) -> Trees:
    """Every file that each variant renders at `commit`, options whole like the rest.

    Raises CommitError when the commit keeps no snapshots, or not all of it is here.
    """
    kept = SNAPSHOTS.as_posix()
    listing = read_or_refuse(root, "ls-tree", "-r", "-z", commit, "--", f"{kept}/")
    files: list[tuple[str, str, PurePosixPath]] = []
    for line in os.fsdecode(listing).split("\0")[:-1]:
        about, _, name = line.partition("\t")
        mode, kind, blob = about.split()
        place = PurePosixPath(name).relative_to(kept)
        if kind == "blob" and len(place.parts) > 1:
            files.append((mode, blob, place))
    if not files:
        raise CommitError(
            f"{commit[:10]} has no {kept}: it is older than the first of them, or of something else"
        )
    contents = blobs(root, sorted({blob for _, blob, _ in files}))
    deltas: Trees = {}
    for mode, blob, place in files:
        variant, path = place.parts[0], PurePosixPath(*place.parts[1:]).as_posix()
        deltas.setdefault(variant, {})[path] = File(contents[blob], mode == "100755")
    return {variant: whole(variant, deltas) for variant in deltas}


def whole(variant: str, deltas: Trees) -> Tree:
    """The files of `variant`: those of its base, with what its option changes laid over them."""
    base = base_of(variant)
    return {**(whole(base, deltas) if base else {}), **deltas.get(variant, {})}


def blobs(root: Path, ids: list[str]) -> dict[str, bytes]:
    """The content of each blob, as it is committed, with line ends untouched."""
    asked = "".join(f"{id}\n" for id in ids).encode()
    output = BytesIO(read_or_refuse(root, "cat-file", "--batch", input=asked))
    contents = {}
    for id in ids:
        head = output.readline().decode("utf-8", "backslashreplace").split()
        # "<id> missing" is what it says of a blob that a partial clone did not bring.
        if head[:2] != [id, "blob"]:
            raise CommitError(f"git cat-file: {' '.join(head)}")
        contents[id] = output.read(int(head[2]))
        output.read(1)
    return contents
