"""Compare knowledge bases with their collection files."""

from ..collections.reader import Document
from ..findings import Finding
from .base import MemoryCollection
from .knowledge_base import REJECTED, KnowledgeBase

MAX_REPORTED = 10  # documents
TYPES = {"vector": "VECTOR", "managed": "MANAGED"}


async def check_knowledge_base(collection: MemoryCollection, document: Document) -> list[Finding]:
    """Return the differences between a knowledge base and its collection file. Calls AWS."""
    memory = collection.memory
    findings = list[Finding]()
    assert isinstance(memory, KnowledgeBase)

    def report(id: str, message: str, field: str) -> None:
        findings.append(document.finding(id, message, "backend", field))

    base, source = await memory.describe()
    if base["status"] != "ACTIVE":
        message = f"The knowledge base is {base['status']}: wait until it is ACTIVE."
        report("AML-W243", message, "knowledge_base_id_secret")
    type = base["knowledgeBaseConfiguration"]["type"]
    if type != TYPES[memory.config.search]:
        message = f"The knowledge base is of type {type}: "
        search_types = {value: name for name, value in TYPES.items()}
        message += (
            f'set search to "{search_types[type]}".'
            if type in search_types
            else "memories need type VECTOR or MANAGED."
        )
        report("AML-E115", message, "search")
    kind = source["dataSourceConfiguration"]["type"] if source else "CUSTOM"
    if kind != "CUSTOM":
        message = f"The data source is of type {kind}: use a data source of type CUSTOM."
        report("AML-E116", message, "data_source_id_secret")
    elif source and source["status"] != "AVAILABLE":
        message = f"The data source is {source['status']}: wait until it is AVAILABLE."
        report("AML-W243", message, "data_source_id_secret")
    elif source:
        for message in await _rejected(memory):
            report("AML-W241", message, "data_source_id_secret")
    return findings


async def _rejected(memory: KnowledgeBase) -> list[str]:
    """Return a message for each document that the knowledge base accepted but did not index."""
    findings = list[str]()
    async for page in memory.documents():
        for detail in page:
            if detail["status"] in REJECTED:
                id = detail["identifier"]["custom"]["id"]
                reason = detail.get("statusReason")
                findings.append(
                    f"Document {id} is {detail['status']}: {reason or 'unknown reason'}."
                )
    if len(findings) <= MAX_REPORTED:
        return findings
    return [
        *findings[:MAX_REPORTED],
        f"{len(findings) - MAX_REPORTED} more documents are not indexed.",
    ]
