"""A collection as the SDK's memory manager sees it: it is read; texts wait for the commit."""

import asyncio
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from strands.memory import MemoryEntry, MemoryStore, SearchOptions

from ..contract import is_blank
from .agentcore import AgentCore
from .long_term import Turn
from .models import Namespace
from .namespaces import Place, event_session
from .recall import MOST, SPARE, Found, Reader, retrieve

SDK = "bedrock_agentcore.memory.integrations.strands.memorystore"


class CollectionStore(MemoryStore):
    """What the SDK sees of a collection; `top_k` and `relevance_score` are those of its file."""

    description, max_search_results, extraction = None, None, None

    def __init__(self, name: str, turn: Turn, readers: list[Reader], *, writable: bool) -> None:
        self.name, self.writable, self._turn, self._readers = name, writable, turn, readers

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        """What fits a query. Never fails, and ends in time."""

        async def ask(reader: Reader, place: Place, wanted: Namespace, query: str) -> list[Found]:
            return await _ask(self._turn, reader, place, wanted, query)

        return [_entry(one) for one in await self._turn.recall.search(query, self._readers, ask)]

    async def add(self, content: str, metadata: Any = None) -> None:
        """Remember a text, if the turn commits."""
        self._turn.add(content)


async def _ask(
    turn: Turn, reader: Reader, place: Place, wanted: Namespace, query: str
) -> list[Found]:
    """What one place has for a query, by the store that the SDK has for AgentCore Memory."""
    memory, count = reader.memory, min(MOST, SPARE * wanted.top_k)
    if not isinstance(memory, AgentCore):
        return await retrieve(reader, place, wanted, query)
    where = {"namespace_path" if place.is_subtree else "namespace": place.path}
    whose = {"actor_id": turn.who.actor, "session_id": event_session(turn.who.session_id)}
    memory_id, least = await memory.memory_id(), wanted.relevance_score

    def search(client: Any) -> list[MemoryEntry]:
        given = {"memory_id": memory_id, "client": SimpleNamespace(gmdp_client=client)}
        more = {"min_score": least, "over_fetch_factor": 1}  # `count` has what is to spare
        store = import_module(SDK).AgentCoreMemoryStore(**given, **where, **whose, **more)
        # In a loop of its own: it calls in the default threads of its loop, where tools run too.
        found: list[MemoryEntry] = asyncio.run(store.search(query, {"max_search_results": count}))
        return found

    entries = await memory.clients.run("recall", memory.region, search)
    found = [read_entry(one, reader.collection_id) for one in entries]
    kept = [one for one in found if place.holds(one.namespace) and not is_blank(one.text)]
    return kept[: wanted.top_k]


def _entry(found: Found) -> MemoryEntry:
    names = {"_id": found.id, "_score": found.score, "_createdAt": found.created_at}
    return MemoryEntry(found.text, metadata=names | {"_namespaces": [found.namespace]})


def read_entry(entry: MemoryEntry, collection: str) -> Found:
    """What an entry of a store says; where that does not say how well it fits, the score is 0."""
    known = entry.metadata or {}
    namespace = next(iter(known.get("_namespaces", [])), "")
    return Found(
        text=entry.content,
        score=known.get("_score", 0.0),
        namespace=namespace,
        collection=collection,
        created_at=known.get("_createdAt", ""),
        id=known.get("_id", ""),
    )
