"""Check that each collection's version covers its changes since a commit.

The specification requires a patch version for descriptions, and a minor version for the scope,
retrieval and writing. The place of the data and the specification need a major version.
"""

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .reader import Document, Findings, finding, parse_document

SECONDS = 20  # per git call
FIELDS = {
    "meta": 2,
    "status": 2,
    "scope": 1,
    "writeback": 1,
}  # index of the number; others: 0 (major)
# Backend fields for reading, writing and expiry; they need a minor version.
MINOR = {"retrieval_config", "batch_size", "extraction", "ttl_seconds", "ttl_days"}
MINOR |= {"timeout_ms", "retry_policy"}


class GitError(Exception):
    """A git command failed; the message has the reason."""


def check_versions(folder: Path, documents: Iterable[Document], ref: str) -> Findings:
    """Report collections whose version is too low for their changes since a commit."""
    try:
        verify = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        commit = _git(folder, *verify).decode().strip()
        listed = _git(folder, "ls-tree", "-z", "--name-only", commit, "collections/")
        known = listed.decode(errors="replace").split("\0")
        for document in documents:
            if document.file in known:
                content = _git(folder, "show", f"{commit}:./{document.file}")
                yield from _check(document, parse_document(content, document.file), ref)
    except GitError as error:
        yield finding("AML-E017", "collections", 0, f"Cannot compare with {ref}: {error}.")


def _check(document: Document, old: Document, ref: str) -> Findings:
    """Compare a file with its older content; skip it if the old version is unreadable."""
    before = old.data
    now = document.data
    version = str(before.get("version")) if before else ""
    numbers = version.partition("+")[0].partition("-")[0].split(".")
    if before is None or now is None or not all(it.isdecimal() for it in numbers):
        return
    required = [int(number) for number in numbers]
    changed = dict(_changes(before, now))
    if changed and len(required) == 3 and "-" not in version:
        level = min(changed.values())
        required = [*required[:level], required[level] + 1, *[0] * (2 - level)]
    number = now["version"].partition("+")[0].partition("-")[0]
    if [int(part) for part in number.split(".")] < required:
        changes = f", and since then {', '.join(changed)} changed" if changed else ""
        message = f"The version is too low: {ref} has {version}{changes}. "
        message += f"Raise it to {'.'.join(map(str, required))}."
        yield document.finding("AML-E016", message, "version")


def _changes(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield each changed field, and the index of the version number to raise."""
    for name in sorted({*before, *now} - {"version"}):
        old = before.get(name)
        new = now.get(name)
        if old == new:
            continue
        if name == "backend" and isinstance(old, dict) and isinstance(new, dict):
            yield from _backend_changes("backend", old, new)
        else:
            yield name, FIELDS.get(name, 0)


def _backend_changes(
    path: str, before: dict[str, Any], now: dict[str, Any]
) -> Iterator[tuple[str, int]]:
    for name in sorted({*before, *now}):
        old = before.get(name)
        new = now.get(name)
        if old == new:
            continue
        if name == "transport" and isinstance(old, dict) and isinstance(new, dict):
            yield from _backend_changes(f"{path}.{name}", old, new)
        else:
            yield f"{path}.{name}", 1 if name in MINOR else 0


def _git(folder: Path, *words: str) -> bytes:
    """Return the output of git. Raises GitError."""
    command = ["git", "-C", str(folder), *words]
    try:
        result = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(f"cannot run git ({type(error).__name__})") from None
    if result.returncode:
        raise GitError("it is not a commit or tag of this repository")
    return result.stdout
