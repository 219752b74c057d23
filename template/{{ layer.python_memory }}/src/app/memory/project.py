"""A project's collections, agents and grants: checked as a whole, and loaded for a start."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from .frontmatter import Document, read
from .history import changed_since
from .lint import lint
from .models import Agent, Collection, Iam
from .references import Documents, lint_agent, lint_iam, lint_variables, references
from .rules import finding, wrong_fields

Findings = Iterator[dict[str, Any]]
# Kind of file -> its folder and its model.
KINDS: dict[str, tuple[str, type[BaseModel]]] = {
    "collection": ("collections", Collection),
    "agent": ("agents", Agent),
    "iam": ("iam", Iam),
}


@dataclass(frozen=True)
class Project:
    """What an agent may read and write: ids of collections, in the order of its file."""

    agent_id: str
    collections: dict[str, Collection]
    reads: list[str]
    writes: list[str]


def check_project(
    folder: Path, agent_id: str | None = None, against: str | None = None
) -> list[dict[str, Any]]:
    """What is wrong in a project: errors first, then by file, line and id.

    `agent_id` is the agent that runs, by default the only one; `against` is a commit to compare
    with. Each id is told once per line. Never raises, whatever the files hold.
    """
    found = {
        (one["id"], one["file"], one["line"]): one for one in _findings(folder, agent_id, against)
    }
    order = ("severity", "file", "line", "id")  # "error" is before "warning"
    return sorted(found.values(), key=lambda one: [one[name] for name in order])


def load_project(folder: Path, agent_id: str | None = None) -> Project:
    """The project in which `check_project` finds no error; otherwise this raises anything."""
    documents = {kind: _documents(folder, kind) for kind in KINDS}
    agent_id = agent_id or next(iter(documents["agent"]))
    named = references(documents["agent"][agent_id])
    collections = documents["collection"].items()
    return Project(
        agent_id,
        {id: Collection.model_validate(document.data) for id, document in collections},
        [id for verb, _, id in named if verb == "read"],
        [id for verb, _, id in named if verb == "write"],
    )


def _findings(folder: Path, agent_id: str | None, against: str | None) -> Findings:
    documents: dict[str, Documents] = {}
    for kind, (name, model) in KINDS.items():
        is_needed = kind == "collection" or (folder / name).exists()
        if is_needed and not _is_folder(folder / name):
            yield finding("AML-E00F", name, 0, name=name)
        documents[kind] = _documents(folder, kind)
        for document in documents[kind].values():
            for id, line, names in document.wrong:
                yield finding(id, document.file, line, **names)
            if document.data is not None:
                yield from wrong_fields(kind, model, document)
                yield from lint_variables(document)
    collections, agents, iam = documents["collection"], documents["agent"], documents["iam"]
    for stem, document in collections.items():
        yield from lint(document, stem)
    for stem, document in agents.items():
        yield from lint_agent(stem, document, collections, iam)
    for stem, document in iam.items():
        yield from lint_iam(stem, document, collections)
    if not agents:
        yield finding("AML-E131", "agents", 0)
    elif agent_id is None and len(agents) > 1:
        yield finding("AML-E132", "agents", 0)
    elif agent_id is not None and agent_id not in agents:
        yield finding("AML-E133", "agents", 0, name=agent_id)
    if against is not None:
        yield from changed_since(against, folder, collections)


def _is_folder(path: Path) -> bool:
    try:
        return next(path.iterdir(), path) is not None
    except OSError:
        return False


def _documents(folder: Path, kind: str) -> dict[str, Document]:
    """The files of one kind, by their names without .<kind>.md."""
    name, suffix = KINDS[kind][0], f".{kind}.md"
    if not _is_folder(folder / name):
        return {}
    paths = sorted(path for path in (folder / name).iterdir() if path.name.endswith(suffix))
    return {path.name[: -len(suffix)]: read(path, f"{name}/{path.name}") for path in paths}
