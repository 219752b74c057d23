"""Compare AgentCore memories with their collection files."""

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
    """Return the differences between a memory and its collection file. Calls AWS."""
    assert isinstance(collection.memory, AgentCore)
    path = ("backend", "memory_id_secret")
    resource = await collection.memory.describe()
    if resource["status"] != "ACTIVE":
        message = f"The memory is {resource['status']}: wait until it is ACTIVE."
        return [document.finding("AML-W243", message, *path)]
    findings = _check_metadata(collection, resource, document)
    strategies = resource.get("strategies", [])
    if not all(written_templates({"strategies": [strategy]}) for strategy in strategies):
        return findings  # a strategy without templates chooses its namespaces
    written = written_templates(resource)
    if collection.namespaces is None:
        if collection.lifetime != "user" or "{actorId}" in " ".join(written):
            return []
        message = "No strategy of the memory has {actorId} in its namespaces: add such a strategy."
        return [document.finding("AML-W246", message, *CONFIG)]
    has_key = any(key["key"] == "projectid" for key in resource.get("namespaceKeys", []))
    for template in collection.namespaces:
        requested = template.replace("{projectId}", project_id or "{projectId}")
        paths = of_strategies(requested, resource)
        if any(is_written(path, pattern) for path in paths for pattern in written):
            continue
        if "{projectId}" in template and not has_key:
            id = "AML-W245"
            hint = "add the namespace key projectid to the memory"
        else:
            id = "AML-W244"
            hint = f"they write to {', '.join(written) or 'no namespace'}"
        message = f"No strategy of the memory writes to {template}: {hint}."
        findings.append(document.finding(id, message, *CONFIG, template))
    return findings


def _check_metadata(
    collection: MemoryCollection, resource: dict[str, Any], document: Document
) -> Findings:
    indexed = {entry["key"] for entry in resource.get("indexedKeys", [])}
    return [
        document.finding(
            "AML-W249",
            f"The memory does not index {key}: add it to the indexed keys to filter by it.",
            *(*CONFIG, template, "metadata"),
        )
        for template, config in (collection.namespaces or {}).items()
        for key in config.metadata
        if key not in indexed
    ]
