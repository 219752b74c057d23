"""What changed in the collections since a commit, and whether their versions say so."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .frontmatter import Document, parse
from .models import Agent, Collection
from .references import Documents, references
from .rules import at, finding, wrong_fields

# What a minor version may change of a backend; all else there moves the data, or breaks with it.
TUNING = {"retrieval_config", "batch_size", "ttl_seconds", "ttl_days"}
TUNING |= {"timeout_ms", "retry_policy", "credentials"}


def changed_since(ref: str, folder: Path, collections: Documents) -> Iterator[dict[str, Any]]:
    """The findings in the collections of the project in `folder`, against commit `ref`."""
    if _git(folder, "rev-parse", "--git-dir") is None:
        yield finding("AML-E154", ".", 0, ref=ref)
        return
    commit = f"{ref}^{{commit}}"
    found = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", commit)
    if found is None:
        yield finding("AML-E155", ".", 0, ref=ref)
        return
    commit = found.decode().strip()
    before = _documents(folder, commit, "collection", "collections")
    agents = _documents(folder, commit, "agent", "agents")
    for id in {id for agent in agents.values() for _, _, id in references(agent)}:
        if id in before and id not in collections and before[id].get("status") != "disabled":
            yield finding("AML-E014", f"collections/{id}.collection.md", 0, name=id, ref=ref)
    for id in before.keys() & collections.keys():
        yield from _version(ref, before[id], collections[id])


def _git(folder: Path, *arguments: str) -> bytes | None:
    try:
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout


def _documents(folder: Path, commit: str, kind: str, below: str) -> Documents:
    """The valid front matters of a folder at a commit."""
    listed = _git(folder, "ls-tree", "--name-only", "-z", commit, f"{below}/") or b""
    documents: Documents = {}
    for file in listed.decode("utf-8", "surrogateescape").split("\0"):
        if file.endswith(f".{kind}.md"):
            document = parse(_git(folder, "show", f"{commit}:./{file}") or b"", file)
            model = Collection if kind == "collection" else Agent
            if document.data is not None and not wrong_fields(kind, model, document):
                documents[file[len(below) + 1 : -len(kind) - 4]] = document
    return documents


def _version(ref: str, old: Document, new: Document) -> Iterator[dict[str, Any]]:
    if new.data is None or wrong_fields("collection", Collection, new):
        return
    before, after = Collection.model_validate(old.data), Collection.model_validate(new.data)
    needed = _level(before, after)
    was, now = ([int(part) for part in one.version.split(".")] for one in (before, after))
    raised = 2 if now[0] > was[0] else 1 if now[1] > was[1] else 0
    next_one = f"{was[0] + 1}.0.0" if needed == 2 else f"{was[0]}.{was[1] + 1}.0"
    names = {"ref": ref, "before": before.version, "expected": next_one}
    if now < was:
        yield at("AML-E150", new, "version", **names)
    elif now == was and needed is not None:
        yield at("AML-E151", new, "version", **names)
    elif needed is not None and raised < needed:
        yield at("AML-E152" if raised == 0 else "AML-E153", new, "version", **names)


def _level(before: Collection, after: Collection) -> int | None:
    """Which part of a version a change has to raise: 0 patch, 1 minor, 2 major; None: nothing."""
    old, new = (one.model_dump(exclude={"version"}) for one in (before, after))
    if old == new:
        return None
    if _place(old["backend"]) != _place(new["backend"]):
        return 2
    if before.writeback.enabled and not after.writeback.enabled:
        return 2
    described = {"meta", "status", "spec_version"}
    same = all(old[name] == new[name] for name in old if name not in described)
    return 0 if same else 1


def _place(backend: dict[str, Any]) -> dict[str, Any]:
    """What of a backend says where the data is."""
    transport = backend.get("transport") or {}
    kept = {name: value for name, value in backend.items() if name not in TUNING}
    return kept | {"transport": {name: transport[name] for name in transport if name not in TUNING}}
