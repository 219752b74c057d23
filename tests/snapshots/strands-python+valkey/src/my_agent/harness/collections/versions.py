"""Versions of collections and what changed since a commit, as the specification relates them.

A patch for descriptions; a minor version for the scope, retrieval and writing; a major one for
where the data is, and for another specification.
"""

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .reader import Document, Findings, finding, parse_document

SECONDS = 20  # for each call of git
FIELDS = {"meta": 2, "status": 2, "scope": 1, "writeback": 1}  # others are 0: a major version
# Of a backend: how it is read and written, and for how long.
MINOR = {"retrieval_config", "batch_size", "extraction", "ttl_seconds", "ttl_days"}
MINOR |= {"timeout_ms", "retry_policy"}


class GitError(Exception):
    """Git has no answer; the message says why."""


def check_versions(folder: Path, documents: Iterable[Document], ref: str) -> Findings:
    """Check that versions grew with what changed since a commit."""
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
        yield finding("AML-E017", "collections", 0, f"Nothing is known of {ref}: {error}.")


def _check(document: Document, old: Document, ref: str) -> Findings:
    """Compare a file with an older one, unless that had no version that can be read."""
    before, now = old.data, document.data
    version = str(before.get("version")) if before else ""
    numbers = version.partition("+")[0].partition("-")[0].split(".")
    if before is None or now is None or not all(it.isdecimal() for it in numbers):
        return
    least = [int(number) for number in numbers]
    changed = dict(_changes(before, now))
    if changed and len(least) == 3 and "-" not in version:
        level = min(changed.values())
        least = [*least[:level], least[level] + 1, *[0] * (2 - level)]
    number = now["version"].partition("+")[0].partition("-")[0]
    if [int(part) for part in number.split(".")] < least:
        what = f", and since then {', '.join(changed)} changed" if changed else ""
        message = f"The version is too low: {ref} has {version}{what}. "
        message += f"Raise it to {'.'.join(map(str, least))}."
        yield document.finding("AML-E016", message, "version")


def _changes(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield what changed: the field, and which number of the version it concerns."""
    for name in sorted({*before, *now} - {"version"}):
        one, other = before.get(name), now.get(name)
        if one == other:
            continue
        if name == "backend" and isinstance(one, dict) and isinstance(other, dict):
            yield from _backend_changes("backend", one, other)
        else:
            yield name, FIELDS.get(name, 0)


def _backend_changes(
    path: str, before: dict[str, Any], now: dict[str, Any]
) -> Iterator[tuple[str, int]]:
    for name in sorted({*before, *now}):
        one, other = before.get(name), now.get(name)
        if one == other:
            continue
        if name == "transport" and isinstance(one, dict) and isinstance(other, dict):
            yield from _backend_changes(f"{path}.{name}", one, other)
        else:
            yield f"{path}.{name}", 1 if name in MINOR else 0


def _git(folder: Path, *words: str) -> bytes:
    """Return what git prints. Raises GitError."""
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(f"git cannot be run ({type(error).__name__})") from None
    if done.returncode:
        raise GitError("it is no commit or tag of this repository")
    return done.stdout
