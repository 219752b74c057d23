"""Search AgentCore memories with the AgentCore SDK's store for Strands."""

import asyncio
from contextvars import ContextVar
from typing import Any

from strands.memory import MemoryEntry

from . import agentcore
from .aws import Call
from .base import Metadata, Record
from .namespaces import Namespace, Who, event_session

search_filters = ContextVar[dict[str, Any]]("search_filters")  # of the search in this thread


class AgentCoreClients(agentcore.AgentCoreClients):
    """AWS clients; searches use the AgentCore SDK's client."""

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
        self, identity: Who, namespace: Namespace, query: str, limit: int, metadata: Metadata
    ) -> list[Record]:
        options: dict[str, Any] = {"memory_id": await self.memory_id(), "actor_id": identity.actor}
        options["namespace_path" if namespace.is_subtree else "namespace"] = namespace.path
        options["session_id"] = event_session(identity.session_id)

        def search(client: Any) -> list[MemoryEntry]:
            from bedrock_agentcore.memory.integrations.strands import memorystore

            search_filters.set(agentcore.filters(metadata))
            store = memorystore.AgentCoreMemoryStore(client=client, **options)
            # A separate loop: the store would share the default threads with tools.
            return asyncio.run(store.search(query, {"max_search_results": limit}))

        entries = await self.clients.run("recall", self.region, search)
        return [_record(entry.content, entry.metadata or {}) for entry in entries]


def _in_one_page(params: dict[str, Any], **_: Any) -> dict[str, Any]:
    # The SDK reads one page of 20 records by default, and does not support filters.
    criteria = {**params["searchCriteria"], **search_filters.get()}
    return {"maxResults": criteria["topK"]} | params | {"searchCriteria": criteria}


def _record(text: str, metadata: Any) -> Record:
    return Record(
        id=metadata.get("_id", ""),
        text=text,
        score=metadata.get("_score", 0.0),
        namespace=next(iter(metadata.get("_namespaces", [])), ""),
        created_at=str(metadata.get("_createdAt", "")),
    )
