"""The search of AgentCore memories, by the store that the SDK has for Strands."""

import asyncio
from contextvars import ContextVar
from typing import Any

from strands.memory import MemoryEntry

from . import agentcore
from .aws import Call
from .base import Metadata, Record
from .namespaces import Namespace, Who, event_session

wanted = ContextVar[dict[str, Any]]("wanted")  # filters of the search that runs in a thread


class AgentCoreClients(agentcore.AgentCoreClients):
    """The clients; those that search are the SDK's."""

    def connect(self, call: Call, region: str) -> Any:
        """Make a client."""
        if call != "recall":
            return super().connect(call, region)
        from bedrock_agentcore.memory import MemoryClient
        from bedrock_agentcore.memory.integrations.strands import memorystore  # noqa: F401 (slow)

        client = MemoryClient(region, "strands", boto3_session=self.session(call))
        event = "provide-client-params.bedrock-agentcore.RetrieveMemoryRecords"
        client.gmdp_client.meta.events.register(event, _in_one_page)
        return client


class AgentCoreMemory(agentcore.AgentCore):
    """A memory that the SDK's store searches."""

    async def retrieve(
        self, who: Who, namespace: Namespace, query: str, limit: int, metadata: Metadata
    ) -> list[Record]:
        given: dict[str, Any] = {"memory_id": await self.memory_id(), "actor_id": who.actor}
        given["namespace_path" if namespace.is_subtree else "namespace"] = namespace.path
        given["session_id"] = event_session(who.session_id)

        def search(client: Any) -> list[MemoryEntry]:
            from bedrock_agentcore.memory.integrations.strands import memorystore

            wanted.set(agentcore.filters(metadata))
            store = memorystore.AgentCoreMemoryStore(client=client, **given)
            # In a loop of its own: the store uses the default threads of its loop, as tools do.
            return asyncio.run(store.search(query, {"max_search_results": limit}))

        entries = await self.clients.run("recall", self.region, search)
        return [_record(entry.content, entry.metadata or {}) for entry in entries]


def _in_one_page(params: dict[str, Any], **_: Any) -> dict[str, Any]:
    # The SDK reads one page, of 20 records by default, and has no filters.
    criteria = {**params["searchCriteria"], **wanted.get()}
    return {"maxResults": criteria["topK"]} | params | {"searchCriteria": criteria}


def _record(text: str, known: Any) -> Record:
    return Record(
        id=known.get("_id", ""),
        text=text,
        score=known.get("_score", 0.0),
        namespace=next(iter(known.get("_namespaces", [])), ""),
        created_at=str(known.get("_createdAt", "")),
    )
