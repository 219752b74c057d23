"""A memory in Amazon Bedrock AgentCore: its API calls."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from ..collections.agentcore_backend import AgentCoreConfig
from ..collections.memory_backend import NamespaceConfig
from ..collections.secrets import Secrets
from .aws import Call, Clients, secret_of
from .base import Entry, Event, MemoryCollection, MemoryUnavailable, Metadata, Namespaces
from .namespaces import Namespace, event_session
from .retry_queue import with_retries
from .strategies import DEFAULT_TEMPLATE, are_whole, of_strategies, written_templates

PAGE = 100  # maximum number of items per request or reply


class AgentCoreClients(Clients):
    name = "AgentCore Memory"
    control = "bedrock-agentcore-control"
    recall = record = "bedrock-agentcore"


def filters(metadata: Metadata) -> dict[str, Any]:
    """Return the search criteria that select records with this metadata."""
    conditions = [
        {
            "left": {"metadataKey": key},
            "operator": "EQUALS_TO",
            "right": {"metadataValue": {"stringValue": value}},
        }
        for key, value in metadata.items()
    ]
    return {"metadataFilters": conditions} if conditions else {}


class AgentCore:
    """An AgentCore memory; its id is in a secret. The adapter adds the framework's search.

    All memories of a process share `clients`.
    """

    after_erasure = (
        "records of the last turns may still be extracted: run this again in a few minutes"
    )

    def __init__(self, config: AgentCoreConfig, secrets: Secrets, clients: Clients) -> None:
        (ref,) = config.secret_refs()
        region = config.region
        self.ref = ref
        self.region = region
        self.secrets = secrets
        self.clients = clients
        self.contact = f"the AgentCore memory of secret {ref.reference!r} in {region}"
        self._description: dict[str, Any] | None = None

    async def memory_id(self) -> str:
        """Return the id or the ARN of the memory. Raises MemoryUnavailable."""
        return await secret_of(self.secrets, self.ref)

    async def writes_to(self) -> str:
        # Without the prefix of an ARN.
        return f"{self.region} {(await self.memory_id()).rpartition('/')[2]}"

    async def warm_up(self, collection: MemoryCollection) -> None:
        calls: list[Call] = ["record"] if collection.is_writable else []
        if collection.is_read:
            calls += ["recall"] if are_whole(collection.namespaces) else ["recall", "control"]
        await asyncio.gather(*[self.clients.warm_up(call, self.region) for call in calls])

    async def namespaces(self, collection: MemoryCollection) -> Namespaces:
        declared = collection.namespaces
        if declared is not None and are_whole(declared):
            return declared
        memory = await self.describe()
        if declared is None:
            required = (
                "{actorId}" if collection.lifetime == "user" else ""
            )  # never shared between actors
            templates = [name for name in written_templates(memory) if required in name]
            return {template: NamespaceConfig() for template in templates}
        items = declared.items()
        paths = {path: config for name, config in items for path in of_strategies(name, memory)}
        if not paths:
            raise MemoryUnavailable("no strategy of the memory writes to them")
        return paths

    async def templates(self, collection: MemoryCollection) -> list[str]:
        memory = await with_retries(self.describe)
        declared = collection.namespaces or {}
        paths = [path for name in declared for path in of_strategies(name, memory)]
        # Turns do not search all of them. The last templates include deleted strategies.
        return [*paths, *written_templates(memory), *declared, DEFAULT_TEMPLATE]

    async def create_event(self, event: Event) -> None:
        payload = [
            {"conversational": {"role": role, "content": {"text": text}}}
            for role, text, *_ in event.utterances
        ]
        fields: dict[str, Any] = {"payload": payload, "eventTimestamp": event.at}
        identity = event.identity
        fields |= {"actorId": identity.actor, "sessionId": event_session(identity.session_id)}
        if event.project_id is not None:  # the service requires lower-case keys
            fields["extractionConfig"] = {"namespaceVariables": {"projectid": event.project_id}}
        if event.metadata:
            metadata = {key: {"stringValue": text} for key, text in event.metadata.items()}
            fields["metadata"] = metadata
        await self.call("record", "create_event", clientToken=event.token, **fields)

    async def describe(self) -> dict[str, Any]:
        """Return the memory resource from GetMemory. Caches replies, including late replies."""
        if self._description is not None:
            return self._description
        name = (await self.memory_id()).rpartition("/")[2]  # the control plane does not accept ARNs

        def get(client: Any) -> dict[str, Any]:
            memory: dict[str, Any] = client.get_memory(memoryId=name)["memory"]
            self._description = memory if memory["status"] == "ACTIVE" else None
            return memory

        return await self.clients.run("control", self.region, get)

    async def sessions(self, actor: str) -> list[str]:
        pages = self._pages("list_sessions", "sessionSummaries", actorId=actor)
        return [session["sessionId"] async for page in pages for session in page]

    async def actors(self) -> list[str]:
        pages = self._pages("list_actors", "actorSummaries")
        return [actor["actorId"] async for page in pages for actor in page]

    async def events(self, actor: str, session: str) -> AsyncIterator[list[str]]:
        fields = {"actorId": actor, "sessionId": session, "includePayloads": False}
        async for page in self._pages("list_events", "events", **fields):
            yield [event["eventId"] for event in page]

    async def delete_event(self, actor: str, session: str, event: str) -> None:
        fields = {"actorId": actor, "sessionId": session, "eventId": event}
        try:
            await with_retries(partial(self.call, "record", "delete_event", **fields))
        except MemoryUnavailable as error:
            if error.code != "ResourceNotFoundException":
                raise

    async def records(self, namespace: Namespace) -> AsyncIterator[list[str]]:
        async for page in self.entries(namespace):
            yield [id for id, _ in page]

    async def entries(self, namespace: Namespace) -> AsyncIterator[list[Entry]]:
        key = "memoryRecordSummaries"
        async for page in self._pages("list_memory_records", key, **namespace.parameter):
            records = [(record["memoryRecordId"], record["namespaces"]) for record in page]
            yield [(id, paths) for id, paths in records if any(map(namespace.holds, paths))]

    async def delete_records(self, ids: list[str]) -> list[str]:
        records = [{"memoryRecordId": id} for id in ids]
        call = partial(self.call, "record", "batch_delete_memory_records", records=records)
        deleted = (await with_retries(call))["successfulRecords"]
        return [record["memoryRecordId"] for record in deleted]

    async def _pages(
        self, operation: str, key: str, **fields: Any
    ) -> AsyncIterator[list[dict[str, Any]]]:
        fields["maxResults"] = PAGE
        while True:
            reply = await with_retries(partial(self.call, "record", operation, **fields))
            yield reply[key]
            if not reply.get("nextToken"):
                return
            fields["nextToken"] = reply["nextToken"]

    async def call(self, call: Call, operation: str, **fields: Any) -> Any:
        """Call an operation within a time limit. Raises MemoryUnavailable."""
        id = await self.memory_id()
        return await self.clients.run(
            call, self.region, lambda client: getattr(client, operation)(memoryId=id, **fields)
        )
