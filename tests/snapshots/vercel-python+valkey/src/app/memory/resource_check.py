"""Whether the memories that the collections of an agent name are as they need them: for `check`."""

import re
from pathlib import Path
from typing import Any

from ..settings import Settings, diagnostic
from .agentcore import AgentCore
from .agentcore_client import Clients
from .backends import Unavailable
from .errors import Refused
from .frontmatter import Document, read
from .models import AgentCoreMemory, Collection
from .namespaces import PLACEHOLDER
from .options import Options
from .project import load_project
from .recall import Reader
from .rules import finding
from .secrets import Secrets
from .secrets_check import has_aws
from .topology import build_topology

ABSENT = re.compile("ResourceNotFoundException|it does not exist")
CONFIG = ("backend", "retrieval_config")
Findings = list[dict[str, Any]]


async def check_resources(folder: Path, options: Options) -> Findings:
    """What does not fit, in a project in which `check_project` finds no error.

    Without AWS credentials nothing is called, and that is told.
    """
    project, found = load_project(folder, options.agent_id), Findings()
    clients, secrets = Clients(options), Secrets(options)
    try:
        build_topology(Settings(), options, project, secrets).clients.close()
    except Unavailable as error:
        return [diagnostic("SET-STORE", f"{error}.")]
    try:
        for id in dict.fromkeys([*project.reads, *project.writes]):
            collection, file = project.collections[id], f"collections/{id}.collection.md"
            backend = collection.backend
            if isinstance(backend, AgentCoreMemory):
                where = backend.memory_id_secret or "", backend.region, options, secrets, clients
                document = read(folder / file, file)
                found += await _check(collection, document, AgentCore(*where), options.project_id)
    finally:
        clients.close()
    return found


async def _check(
    collection: Collection, document: Document, memory: AgentCore, project_id: str | None
) -> Findings:
    backend = collection.backend
    assert isinstance(backend, AgentCoreMemory)
    file, line = document.file, document.line(("backend", "memory_id_secret"))
    reference = backend.memory_id_secret or ""
    if not has_aws():
        return [finding("AML-W247", file, line, why="there are no AWS credentials")]
    try:
        await memory.memory_id()
    except Unavailable as error:
        why = str(error).replace(repr(reference), reference).partition("; locally, ")[0]
        return [finding("AML-W247", file, line, why=why)]
    try:
        resource = await memory.describe()
        # Of this lifetime all templates are told, in the words of the files.
        written = [*await Reader("", "project", memory, None).namespaces()]
    except Unavailable as error:
        if isinstance(error, Refused) or ABSENT.search(str(error)):
            names = {"name": reference, "region": backend.region}
            return [finding("AML-E112", file, line, **names)]
        return [finding("AML-W247", file, line, why=error)]
    if resource["status"] != "ACTIVE":
        return [finding("AML-W243", file, line, status=resource["status"])]
    keys = [one["key"] for one in resource.get("namespaceKeys", [])]
    if not all(map(_namespaces, resource.get("strategies", []))):
        return []  # what writes to namespaces of its own choice
    return _compare(collection, document, written, "projectid" in keys, project_id)


def _compare(
    collection: Collection,
    document: Document,
    written: list[str],
    has_key: bool,
    project_id: str | None,
) -> Findings:
    backend = collection.backend
    assert isinstance(backend, AgentCoreMemory)
    if backend.retrieval_config is None:
        is_own = collection.scope.lifetime == "user"
        if any("{actorId}" in one or not is_own for one in written):
            return []
        return [finding("AML-W246", document.file, document.line(CONFIG))]
    found = Findings()
    for template in backend.retrieval_config:
        line = document.line((*CONFIG, template))
        asked = template.replace("{projectId}", project_id or "{projectId}")
        if not any(_is_written(asked, one) for one in written):
            is_keyless = "{projectId}" in template and not has_key
            id = "AML-W245" if is_keyless else "AML-W244"
            names = {"name": template, "written": ", ".join(written) or "nothing"}
            found.append(finding(id, document.file, line, **names))
    return found


def _namespaces(strategy: dict[str, Any]) -> Any:
    return strategy.get("namespaceTemplates") or strategy.get("namespaces")


def _is_written(template: str, written: str) -> bool:
    """Whether what is written by one template may be found by another."""
    asked, wrote = (one.strip("/").split("/") for one in (template, written))
    if asked[-1] == "*":
        asked, wrote = asked[:-1], wrote[: len(asked) - 1]
    return len(asked) == len(wrote) and all(map(_meet, asked, wrote))


def _meet(segment: str, written: str) -> bool:
    """Whether a segment is the other, or what the other may become."""
    pattern = "[^/{}]+".join(map(re.escape, PLACEHOLDER.split(written)[::2]))
    return segment == written or re.fullmatch(pattern, segment) is not None
