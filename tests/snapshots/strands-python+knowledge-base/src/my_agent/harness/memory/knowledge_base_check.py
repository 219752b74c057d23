"""The checks of memories in knowledge bases."""

from ..collections.reader import Document
from ..findings import Finding
from .base import MemoryCollection
from .knowledge_base import REFUSED, KnowledgeBase

MAX_SHOWN = 10  # documents
TYPES = {"vector": "VECTOR", "managed": "MANAGED"}


async def check_knowledge_base(collection: MemoryCollection, document: Document) -> list[Finding]:
    """Return where a knowledge base does not match the file of its collection. Calls Bedrock."""
    memory, found = collection.memory, list[Finding]()
    assert isinstance(memory, KnowledgeBase)

    def note(id: str, message: str, field: str) -> None:
        found.append(document.finding(id, message, "backend", field))

    base, source = await memory.describe()
    if base["status"] != "ACTIVE":
        message = f"The knowledge base is {base['status']}, and cannot be used until it is ACTIVE."
        note("AML-W243", message, "knowledge_base_id_secret")
    type = base["knowledgeBaseConfiguration"]["type"]
    if type != TYPES[memory.config.search]:
        message = f"The knowledge base is of type {type}: "
        known = {value: name for name, value in TYPES.items()}
        message += f'set search to "{known[type]}".' if type in known else "no memory can use it."
        note("AML-E115", message, "search")
    kind = source["dataSourceConfiguration"]["type"] if source else "CUSTOM"
    if kind != "CUSTOM":
        message = f"The data source is of type {kind}: texts need one of type CUSTOM."
        note("AML-E116", message, "data_source_id_secret")
    elif source and source["status"] != "AVAILABLE":
        message = f"The data source is {source['status']}: it takes no texts until it is AVAILABLE."
        note("AML-W243", message, "data_source_id_secret")
    elif source:
        for message in await _refused(memory):
            note("AML-W241", message, "data_source_id_secret")
    return found


async def _refused(memory: KnowledgeBase) -> list[str]:
    """Return the documents that the knowledge base accepted, and did not index."""
    found = list[str]()
    async for page in memory.documents():
        for detail in page:
            if detail["status"] in REFUSED:
                id, reason = detail["identifier"]["custom"]["id"], detail.get("statusReason")
                found.append(f"Document {id} is {detail['status']}: {reason or 'no reason'}.")
    if len(found) <= MAX_SHOWN:
        return found
    return [*found[:MAX_SHOWN], f"{len(found) - MAX_SHOWN} more documents are not indexed."]
