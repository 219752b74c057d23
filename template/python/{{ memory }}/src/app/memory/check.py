"""The checks of long-term memory: its saved policy, and the resources themselves."""

import json
from pathlib import Path
from typing import Any

from ..collections.check import Project
from ..collections.reader import Document, finding, read_document
from ..collections.secrets import has_aws_credentials
from ..findings import Finding
from .adapter import AgentCore
from .base import MemoryCollection, MemoryRefused, MemoryUnavailable
from .iam import is_filled_in, make_policy, policy_file
from .namespaces import is_written, of_strategies, written_templates

Findings = list[Finding]
CONFIG = ("backend", "retrieval_config")


def check_policy(project: Project) -> Findings:
    """Return a warning if the saved policy is not the one that the project needs."""
    file = policy_file(project)
    if not Path(file).exists():
        return []
    try:
        saved = json.loads(Path(file).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        saved = None
    if is_filled_in(saved, make_policy(project)):
        return []
    message = "This is not the policy that `iam` prints: save it again with `iam --save`."
    return [finding("AML-W248", file, 1, message)]


async def check_resources(collections: list[MemoryCollection], project_id: str | None) -> Findings:
    """Return where memories on AWS do not match the files. Calls the service."""
    found = Findings()
    for collection in collections:
        if isinstance(collection.memory, AgentCore):
            file = f"collections/{collection.id}.collection.md"
            found += await _check(collection, read_document(Path(file), file), project_id)
    return found


async def _check(
    collection: MemoryCollection, document: Document, project_id: str | None
) -> Findings:
    memory = collection.memory
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
    found = _check_metadata(collection, resource, document)
    strategies = resource.get("strategies", [])
    if not all(written_templates({"strategies": [strategy]}) for strategy in strategies):
        return found  # a strategy that writes to namespaces of its own choice
    written = written_templates(resource)
    if collection.namespaces is None:
        if collection.lifetime != "user" or "{actorId}" in " ".join(written):
            return []
        message = "No strategy of the memory writes for each {actorId}: add one."
        return [document.finding("AML-W246", message, *CONFIG)]
    has_key = any(key["key"] == "projectid" for key in resource.get("namespaceKeys", []))
    for template in collection.namespaces:
        asked = template.replace("{projectId}", project_id or "{projectId}")
        filled = of_strategies(asked, resource)
        if any(is_written(path, pattern) for path in filled for pattern in written):
            continue
        if "{projectId}" in template and not has_key:
            id, message = "AML-W245", "add the namespace key projectid to the memory"
        else:
            id, message = "AML-W244", f"they write to {', '.join(written) or 'nothing'}"
        message = f"No strategy of the memory writes to {template}: {message}."
        found.append(document.finding(id, message, *CONFIG, template))
    return found


def _check_metadata(
    collection: MemoryCollection, resource: dict[str, Any], document: Document
) -> Findings:
    indexed = {entry["key"] for entry in resource.get("indexedKeys", [])}
    return [
        document.finding(
            "AML-W249",
            f"The memory does not index {key}: add it to the indexed keys, or no search finds it.",
            *(*CONFIG, template, "metadata"),
        )
        for template, config in (collection.namespaces or {}).items()
        for key in config.metadata
        if key not in indexed
    ]
