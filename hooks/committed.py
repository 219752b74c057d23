"""Read files of a commit from Git."""

import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

SHALLOW = "; the clone is shallow, so fetch the rest: git fetch --unshallow"


class CommitError(Exception):
    """A commit cannot be read. The text is one line with the reason."""


def git(
    root: Path, *arguments: str, text: str = "", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Run git in `root`, with `text` as its input. Raises CommitError if git is not installed."""
    environment = os.environ | variables
    data = text.encode()
    command = ["git", *arguments]
    try:
        return subprocess.run(command, cwd=root, env=environment, input=data, capture_output=True)
    except FileNotFoundError as error:
        raise CommitError("git is not installed: install it to read commits") from error


def read_or_refuse(root: Path, *arguments: str, text: str = "", **variables: str) -> bytes:
    """Return the output of git. Raises CommitError with git's message if git fails."""
    result = git(root, *arguments, text=text, **variables)
    if result.returncode:
        reason = " ".join(result.stderr.decode("utf-8", "backslashreplace").split())
        raise CommitError(f"git {arguments[0]}: {reason or result.returncode}")
    return result.stdout


def resolve(root: Path, ref: str) -> str:
    """Return the full id of the commit that `ref` names.

    Raises CommitError if there is no such commit, or if `root` is not in a Git repository.
    """
    shallow = read_or_refuse(root, "rev-parse", "--is-shallow-repository").strip() == b"true"
    # Git would take a REF with a leading dash for an option.
    command = ("rev-parse", "-q", "--verify", f"{ref}^0")
    commit = b"" if ref.startswith("-") else git(root, *command).stdout.strip()
    # Git resolves `^main` (all but main) to `^<id>`.
    if not commit.isalnum():
        raise CommitError(f"{ref!r} is not a commit in this clone{SHALLOW if shallow else ''}")
    return commit.decode()


@contextmanager
def extracted(root: Path, commit: str, *paths: str) -> Iterator[Path]:
    """Yield a temporary folder with `paths` of `root` at `commit`."""
    data = read_or_refuse(root, "archive", commit, "--", *paths)
    with tempfile.TemporaryDirectory(prefix="commit-") as folder:
        with tarfile.open(fileobj=BytesIO(data)) as archive:
            # The Python of Debian 12 does not have filters.
            if hasattr(tarfile, "data_filter"):
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(folder)
        yield Path(folder)
