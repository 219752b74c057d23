"""Check and load a project: its collections, agents and grants."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from ..contract import is_blank
from ..findings import errors_of
from .backends import ANSWERS, OtherConfig
from .fields import SecretRef
from .models import Agent, Collection, Grants, State, is_known
from .reader import Document, FieldPath, Findings, finding, read_document
from .secrets import SecretError, has_aws_credentials, is_set, read_variable, variable_of
from .versions import check_versions

SENTENCE_END = re.compile("(?<![.!?])[.!?]+(?:[ \t\n]+|$)|[\u3002\uff01\uff1f]+")
BREADTH = {"none": 0, "session": 1, "project": 2, "user": 3}
# Fields whose `type` selects the model.
UNIONS = {("backend",), ("backend", "transport")}
# By the status of a referenced collection: the finding's id, and the end of its message.
STATUS = {
    "disabled": ("AML-E102", "disabled: remove it from this list"),
    "draft": ("AML-E103", "a draft: set its status to active first"),
    "deprecated": ("AML-W208", "deprecated: plan a replacement"),
}
ABSENT = "collections/{}.collection.md does not exist: add it, or correct the id."


class File(NamedTuple):
    """A project file and its model; `value` is None if the document has errors."""

    document: Document
    value: Any


@dataclass(frozen=True)
class Files:
    """The project's files by name: `helper` for agents/helper.agent.md."""

    collections: dict[str, File]
    agents: dict[str, File]
    grants: dict[str, File]


@dataclass(frozen=True)
class Project:
    """The collections that an agent reads and writes, by id, in the order of its file."""

    agent_id: str
    collections: dict[str, Collection]
    reads: list[str]
    writes: list[str]
    state: State

    def used(self) -> list[Collection]:
        """Return the collections that the agent reads or writes."""
        ids = dict.fromkeys([*self.reads, *self.writes])
        return [self.collections[id] for id in ids if id in self.collections]

    def session_collections(self) -> list[Collection]:
        """Return the collections that can store sessions; `check` accepts at most one."""
        return [collection for collection in self.used() if stores_sessions(collection)]

    def is_writable(self, collection: Collection) -> bool:
        """Whether the agent may write to a collection."""
        return collection.writeback.enabled and collection.collection_id in self.writes


def stores_sessions(collection: Collection) -> bool:
    """Whether a collection can store sessions. A custom backend can, with any lifetime."""
    return collection.scope.lifetime == "session" or collection.backend.type == "custom"


def check_project(folder: Path, agent_id: str | None, against: str = "") -> list[dict[str, Any]]:
    """Return the findings in a project: errors first, then by file, line and id. Never raises.

    `agent_id` is the agent that runs; None selects the only agent. `against` is a commit: the
    versions of the collections are compared with those in it.
    """
    files = _read_files(folder)
    findings = [*_check_folders(folder), *_check_running_agent(files, agent_id)]
    for kind in (files.collections, files.agents, files.grants):
        for name, file in kind.items():
            findings += file.document.errors
            findings += _check_file(name, file.document, file.value, files) if file.value else []
    if against:
        documents = [file.document for file in files.collections.values() if file.value]
        findings += check_versions(folder, documents, against)
    if project := _project(files, agent_id):
        ids = dict.fromkeys([*project.reads, *project.writes])
        used = [files.collections[id] for id in ids if id in project.collections]
        findings += _check_backends(used)
        if not errors_of(findings):
            findings += _check_environment(used)
    order = ("severity", "file", "line", "id", "message")  # "error" sorts before "warning"
    unique = {tuple(item[name] for name in order): item for item in findings}
    return [unique[key] for key in sorted(unique)]


def load_project(folder: Path, agent_id: str | None) -> Project:
    """Load a project without its invalid collections.

    Raises ValueError when the agent's file is missing or invalid: run `check_project` first.
    """
    project = _project(_read_files(folder), agent_id)
    if project is None:
        raise ValueError("the project is invalid: run `check`")
    return project


def _project(files: Files, agent_id: str | None) -> Project | None:
    if agent_id is None and len(files.agents) == 1:
        (agent_id,) = files.agents
    agent = files.agents.get(agent_id or "")
    if agent_id is None or agent is None or agent.value is None:
        return None
    collections = {id: file.value for id, file in files.collections.items() if file.value}
    memory = agent.value.memory
    state = agent.value.state
    return Project(agent_id, collections, memory.read_collections, memory.write_collections, state)


def _read_files(folder: Path) -> Files:
    return Files(
        _read_folder(folder / "collections", ".collection.md", Collection),
        _read_folder(folder / "agents", ".agent.md", Agent),
        _read_folder(folder / "iam", ".iam.md", Grants),
    )


def _read_folder(folder: Path, suffix: str, model: type[BaseModel]) -> dict[str, File]:
    files = {}
    for path in sorted(folder.iterdir()) if _is_folder(folder) else []:
        # Editors and macOS store hidden files there, such as .#x and ._x.
        if path.name.endswith(suffix) and not path.name.startswith("."):
            document = read_document(path, f"{folder.name}/{path.name}")
            files[path.name.removesuffix(suffix)] = _validate(document, model)
    return files


def _is_folder(path: Path) -> bool:
    """Whether a path is a folder that can be listed."""
    try:
        return next(path.iterdir(), path) is not None
    except OSError:
        return False


def _validate(document: Document, model: type[BaseModel]) -> File:
    if document.errors:
        return File(document, None)
    try:
        return File(document, model.model_validate(document.data))
    except ValidationError as error:
        errors: dict[FieldPath, dict[str, Any]] = {}
        for issue in error.errors(include_url=False, include_context=False, include_input=False):
            path = _field_path(issue["loc"], issue["type"])
            message = f"{'.'.join(map(str, path))}: {issue['msg']}"
            errors.setdefault(path, document.finding(_field_id(issue["type"]), message, *path))
        document.errors += errors.values()
        return File(document, None)


def _field_id(type: str) -> str:
    if type in ("missing", "union_tag_not_found"):
        return "AML-E301"
    return "AML-E303" if type == "extra_forbidden" else "AML-E302"


def _field_path(location: FieldPath, type: str) -> FieldPath:
    """Return the path of a field in its file, without the union types that pydantic inserts."""
    path = FieldPath()
    is_chosen = False
    for step in location:
        path = path if is_chosen else (*path, step)
        is_chosen = not is_chosen and path in UNIONS
    return (*path, "type") if type.startswith("union_tag") else path


def _check_folders(folder: Path) -> Findings:
    for name in ("collections", "agents", "iam"):
        is_needed = name == "collections" or (folder / name).exists()
        if is_needed and not _is_folder(folder / name):
            message = f"The folder {name} is missing or cannot be read: add it."
            yield finding("AML-E00F", name, 0, message)


def _check_running_agent(files: Files, agent_id: str | None) -> Findings:
    if not files.agents:
        message = "The folder agents has no <agent_id>.agent.md: add one."
        yield finding("AML-E131", "agents", 0, message)
    elif agent_id is None and len(files.agents) > 1:
        message = "The folder agents has several agents: set AGENT_ID to the agent to run."
        yield finding("AML-E132", "agents", 0, message)
    elif agent_id is not None and agent_id not in files.agents:
        message = f"AGENT_ID is {agent_id}: correct it, or add agents/{agent_id}.agent.md."
        yield finding("AML-E133", "agents", 0, message)


def _check_file(name: str, document: Document, value: BaseModel, files: Files) -> Findings:
    folder = document.file.split("/")[0]
    kind = document.file.split(".")[-2]
    field = "collection_id" if isinstance(value, Collection) else "agent_id"
    if (id := getattr(value, field)) != name:
        message = f"Rename this file to {folder}/{id}.{kind}.md, or correct the id."
        yield document.finding("AML-E004", message, field)
    match value:
        case Collection():
            yield from _check_collection(document, value)
        case Agent():
            yield from _check_agent(name, document, value, files)
            yield from _check_state(document)
        case Grants():
            yield from _check_grants(document, value, files)


def _check_collection(document: Document, collection: Collection) -> Findings:
    meta = collection.meta
    if meta.last_updated is None:
        message = "meta.last_updated is missing: add the date of the last change."
        yield document.finding("AML-W205", message, "meta", "last_updated")
    count = sum(not is_blank(sentence) for sentence in SENTENCE_END.split(meta.description))
    if not 2 <= count <= 4:
        message = f"meta.description has {count} sentences: write two to four."
        yield document.finding("AML-W222", message, "meta", "description")
    backend = collection.backend
    lifetime = collection.scope.lifetime
    yield from backend.findings(document, collection.status, lifetime)


def _check_agent(name: str, document: Document, agent: Agent, files: Files) -> Findings:
    """Check the references of an agent, each at its list item."""
    lists = {"read": agent.memory.read_collections, "write": agent.memory.write_collections}
    store = None
    writers = dict[SecretRef, str]()
    references = [*lists["read"], *lists["write"]]
    named = [files.collections[id].value for id in references if id in files.collections]
    of_users = [used for used in named if used and used.scope.lifetime == "user"]
    private = [used.collection_id for used in of_users if not stores_sessions(used)]
    for access, ids in lists.items():
        for index, id in enumerate(ids):
            path = ("memory", f"{access}_collections", index)
            if id not in files.collections:
                yield document.finding("AML-E101", ABSENT.format(id), *path)
                continue
            needed = [kind for kind, others in lists.items() if id in others]
            for rule, message in _check_access(name, id, access, needed, files):
                yield document.finding(rule, message, *path)
            collection = files.collections[id].value
            if collection is None:
                continue
            for rule, message in _check_reference(agent, collection, access):
                yield document.finding(rule, message, *path)
            if stores_sessions(collection):
                store = store or id
                if id != store:
                    message = f"{id} and {store} could both store the sessions: remove one of them."
                    yield document.finding("AML-E109", message, *path)
                elif id not in lists["read"]:
                    message = f"Sessions are loaded before turns: add {id} to read_collections too."
                    yield document.finding("AML-E10C", message, *path)
            elif access == "write":
                is_exclusive = collection.backend.type == "agentcore_memory"
                for memory in collection.backend.secret_refs() if is_exclusive else ():
                    if writers.setdefault(memory, id) != id:
                        message = f"{id} and {writers[memory]} write to the same memory: "
                        yield document.finding("AML-E111", message + "remove one of them.", *path)
                if collection.scope.lifetime == "project" and private:
                    message = f"Turns recorded in {id} are visible to all users, including quotes "
                    message += f"from {private[0]}: remove {id} from write_collections."
                    yield document.finding("AML-W229", message, *path)


def _check_state(document: Document) -> Findings:
    declared = (document.data or {}).get("state", {})
    for name, value in declared.items():
        if not is_known(name, value):
            message = f"state.{name} is ignored: collections/README.md has the fields and values "
            yield document.finding("AML-W230", message + "that have an effect.", "state", name)


def _check_reference(
    agent: Agent, collection: Collection, access: str
) -> Iterator[tuple[str, str]]:
    id = collection.collection_id
    lifetime = collection.scope.lifetime
    mode = agent.memory.mode
    if collection.status in STATUS:
        rule, message = STATUS[collection.status]
        yield rule, f"Collection {id} is {message}."
    if BREADTH[lifetime] > BREADTH[mode]:
        message = f"Collection {id} has lifetime {lifetime}: memory.mode {mode} is too narrow."
        yield "AML-E104", message
    if access == "write" and not collection.writeback.enabled:
        message = f"Collection {id} has writeback.enabled: false: "
        yield "AML-E107", message + "remove it from write_collections."


def _check_access(
    agent_id: str, id: str, access: str, needed: list[str], files: Files
) -> Iterator[tuple[str, str]]:
    """Compare a reference with the grants of its agent; without a grant, access is denied."""
    file = f"iam/{agent_id}.iam.md"
    grants = files.grants.get(agent_id)
    if grants is None:
        message = f"{file} does not exist: create it, and grant {'-'.join(needed)} access to {id}."
        yield "AML-E10B", message
    elif grants.value:
        granted = [grant.access for grant in grants.value.collections if grant.ref == id]
        if granted[:1] == ["deny"]:
            yield "AML-E10A", f"{file} denies access to {id}."
        elif not granted or access not in granted[0].split("-"):
            rule = "AML-E105" if access == "read" else "AML-E106"
            yield rule, f"{file} does not grant {access} access to {id}."


def _check_grants(document: Document, grants: Grants, files: Files) -> Findings:
    seen: set[str] = set()
    for index, grant in enumerate(grants.collections):
        id = grant.ref
        path = ("collections", index)
        if id in seen:
            message = f"{id} is listed twice: keep one grant."
            yield document.finding("AML-E14B", message, *path, "ref")
        seen.add(id)
        if id not in files.collections:
            yield document.finding("AML-E101", ABSENT.format(id), *path, "ref")
        elif collection := files.collections[id].value:
            if collection.status == "disabled":
                rule, message = STATUS["disabled"]
                yield document.finding(rule, f"Collection {id} is {message}.", *path, "ref")
            if not collection.writeback.enabled and "write" in grant.access:
                message = f"Collection {id} has writeback.enabled: false: grant read access only."
                yield document.finding("AML-E108", message, *path, "access")


def _check_backends(used: list[File]) -> Findings:
    for document, collection in used:
        if isinstance(collection.backend, OtherConfig):
            type = collection.backend.type
            answer = ANSWERS.get(type, f"session_store={type}")
            # -x keeps the owner's backend in this file.
            command = f"uvx copier update --defaults -r :current: -d {answer} -x {document.file}"
            message = f"This project has no code for backend type {type}: run `{command}`."
            yield document.finding("AML-E10D", message, "backend", "type")


def _check_environment(used: list[File]) -> Findings:
    """Check that the secrets of the used collections are available, without network calls."""
    has_aws = has_aws_credentials()
    for document, collection in used:
        for ref in collection.backend.secret_refs():
            variable = variable_of(ref.reference)
            if is_set(variable):
                try:
                    read_variable(ref)
                except SecretError as error:
                    yield document.finding("AML-E113", f"{error}.", *ref.path)
                continue
            if ref.reference.startswith("env:"):
                message = f"The variable {variable} is not set: "
                message += "set it, or `serve` refuses to start with a model."
                yield document.finding("AML-W240", message, *ref.path)
            elif not has_aws:
                remedy = f"set {variable}, or " * bool(variable) + "provide credentials"
                message = f"The secret {ref.reference} cannot be read without AWS credentials: "
                message += f"{remedy}. Until then `serve` refuses to start with a model."
                yield document.finding("AML-W242", message, *ref.path)
