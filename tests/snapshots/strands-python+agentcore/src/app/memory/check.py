"""The checks of long-term memory: its settings, its saved policy, and the resources themselves."""

import json
import re
from pathlib import Path
from typing import Any

from ..collections.check import Project
from ..collections.memory_backend import AgentCoreConfig
from ..collections.models import Collection
from ..collections.reader import Document, finding, read_document
from ..collections.secrets import has_aws_credentials
from ..findings import diagnostic
from .adapter import AgentCore
from .base import Memory, MemoryRefused, MemoryUnavailable
from .iam import is_filled_in, make_policy, policy_file
from .namespaces import PLACEHOLDER, Who, resolve, written_templates
from .settings import MemorySettings

Findings = list[dict[str, Any]]
CONFIG = ("backend", "retrieval_config")


def check_memory(project: Project, settings: MemorySettings) -> Findings:
    """Return findings about a project that `check_project` accepts; no network."""
    findings = Findings()
    if problem := find_problem(settings, project):
        findings.append(diagnostic("SET-PROJECT_ID", f"{problem}.", "warning"))
    file = policy_file(project)
    if Path(file).exists():
        try:
            saved = json.loads(Path(file).read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            saved = None
        if not is_filled_in(saved, make_policy(project)):
            message = "This is not the policy that `iam` prints: save it again with `iam --save`."
            findings.append(finding("AML-W248", file, 1, message))
    return findings


def find_problem(settings: MemorySettings, project: Project) -> str:
    """Return why the memories of a project cannot work with these settings, or ""."""
    for collection in project.used():
        if not isinstance(collection.backend, AgentCoreConfig):
            continue
        if needs_project(collection) and not settings.project_id:
            return f"PROJECT_ID is not set, and collection {collection.collection_id} needs it"
        for template in collection.backend.retrieval_config or {}:
            try:
                resolve(template, Who("a", "s", settings.project_id))
            except ValueError as error:
                return f"collection {collection.collection_id}: {error}"
    return ""


def needs_project(collection: Collection) -> bool:
    """Whether a collection needs PROJECT_ID."""
    assert isinstance(collection.backend, AgentCoreConfig)
    templates = collection.backend.retrieval_config or {}
    is_named = any("{projectId}" in template for template in templates)
    return is_named or collection.scope.lifetime == "project"


async def check_resources(
    memories: dict[str, Memory], project: Project, settings: MemorySettings
) -> Findings:
    """Return where memories on AWS do not match the files. Calls the service."""
    found = Findings()
    for id, memory in memories.items():
        if isinstance(memory, AgentCore):
            file = f"collections/{id}.collection.md"
            document = read_document(Path(file), file)
            collection = project.collections[id]
            found += await _check(collection, document, memory, settings)
    return found


async def _check(
    collection: Collection, document: Document, memory: AgentCore, settings: MemorySettings
) -> Findings:
    where = ("backend", "memory_id_secret")
    try:
        if not has_aws_credentials():
            raise MemoryUnavailable("there are no AWS credentials")
        resource = await memory.describe()
    except MemoryUnavailable as error:
        if isinstance(error, MemoryRefused) or error.code == "ResourceNotFoundException":
            message = f"Create {memory.contact}, or correct the id: it does not exist."
            return [document.finding("AML-E112", message, *where)]
        message = f"The status and namespaces of the memory could not be verified: {error}."
        return [document.finding("AML-W247", message, *where)]
    if resource["status"] != "ACTIVE":
        message = f"The memory is {resource['status']}, and cannot be used until it is ACTIVE."
        return [document.finding("AML-W243", message, *where)]
    strategies = resource.get("strategies", [])
    if not all(written_templates({"strategies": [strategy]}) for strategy in strategies):
        return []  # a strategy that writes to namespaces of its own choice
    return _compare(collection, document, resource, settings.project_id)


def _compare(
    collection: Collection, document: Document, resource: dict[str, Any], project_id: str | None
) -> Findings:
    assert isinstance(collection.backend, AgentCoreConfig)
    written, found = written_templates(resource), Findings()
    if collection.backend.retrieval_config is None:
        if collection.scope.lifetime == "user" and "{actorId}" not in " ".join(written):
            message = "No strategy of the memory writes for each {actorId}: add one."
            found.append(document.finding("AML-W246", message, *CONFIG))
        return found
    has_key = any(key["key"] == "projectid" for key in resource.get("namespaceKeys", []))
    for template in collection.backend.retrieval_config:
        asked = template.replace("{projectId}", project_id or "{projectId}")
        if any(_is_written(asked, pattern) for pattern in written):
            continue
        if "{projectId}" in template and not has_key:
            id, message = "AML-W245", "add the namespace key projectid to the memory"
        else:
            id, message = "AML-W244", f"they write to {', '.join(written) or 'nothing'}"
        message = f"No strategy of the memory writes to {template}: {message}."
        found.append(document.finding(id, message, *CONFIG, template))
    return found


def _is_written(template: str, written: str) -> bool:
    """Whether a search by `template` can find records that `written` places."""
    asked, wrote = (path.strip("/").split("/") for path in (template, written))
    if asked[-1] == "*":
        asked, wrote = asked[:-1], wrote[: len(asked) - 1]
    return len(asked) == len(wrote) and all(map(_can_equal, asked, wrote))


def _can_equal(segment: str, written: str) -> bool:
    pattern = "[^/{}]+".join(map(re.escape, PLACEHOLDER.split(written)[::2]))
    return segment == written or re.fullmatch(pattern, segment) is not None
