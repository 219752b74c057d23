"""What a commit has, read from Git's own store."""

import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

SHALLOW = "; this clone is shallow, so fetch more of it: git fetch --unshallow"


class CommitError(Exception):
    """There is nothing to compare with; the text is one line that says why."""


def git(
    root: Path, *arguments: str, given: str = "", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Run git in `root`, with `given` as its input. Raises CommitError when there is no git."""
    environment, data = os.environ | variables, given.encode()
    command = ["git", *arguments]
    try:
        return subprocess.run(command, cwd=root, env=environment, input=data, capture_output=True)
    except FileNotFoundError as error:
        raise CommitError("git is not installed, and REF is read with it") from error


def read_or_refuse(root: Path, *arguments: str, given: str = "", **variables: str) -> bytes:
    """What git prints. Raises CommitError with git's own words when it fails."""
    result = git(root, *arguments, given=given, **variables)
    if result.returncode:
        reason = " ".join(result.stderr.decode("utf-8", "backslashreplace").split())
        raise CommitError(f"git {arguments[0]}: {reason or result.returncode}")
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


@contextmanager
def extracted(root: Path, commit: str, *paths: str) -> Iterator[Path]:
    """A folder with `paths` of `root` as they are at `commit`, gone afterwards."""
    data = read_or_refuse(root, "archive", commit, "--", *paths)
    with tempfile.TemporaryDirectory(prefix="commit-") as folder:
        with tarfile.open(fileobj=BytesIO(data)) as archive:
            # Debian 12 has a Python that knows no filters yet.
            if hasattr(tarfile, "data_filter"):
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(folder)
        yield Path(folder)
