"""The checks of memories in AgentCore Memory."""

from typing import Any

from ..collections.reader import Document
from ..findings import Finding
from .agentcore import AgentCore
from .base import MemoryCollection
from .strategies import is_written, of_strategies, written_templates

Findings = list[Finding]
CONFIG = ("backend", "retrieval_config")


async def check_agentcore(
    collection: MemoryCollection, document: Document, project_id: str | None
) -> Findings:
    """Return where a memory does not match the file of its collection. Calls the service."""
    assert isinstance(collection.memory, AgentCore)
    where = ("backend", "memory_id_secret")
    resource = await collection.memory.describe()
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
