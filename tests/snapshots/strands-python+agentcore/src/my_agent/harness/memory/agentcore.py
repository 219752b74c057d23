"""A memory of Amazon Bedrock AgentCore: its calls and answers."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from ..collections.agentcore_backend import AgentCoreConfig
from ..collections.memory_backend import NamespaceConfig
from ..collections.secrets import Secrets
from .aws import Call, Clients, secret_of
from .base import Event, MemoryCollection, MemoryUnavailable, Metadata, Namespaces
from .namespaces import Namespace, event_session
from .retry_queue import with_retries
from .strategies import are_whole, of_strategies, written_templates

PAGE = 100  # the most that the service returns, or takes, at once


class AgentCoreClients(Clients):
    name, control = "AgentCore Memory", "bedrock-agentcore-control"
    recall = record = "bedrock-agentcore"


def filters(metadata: Metadata) -> dict[str, Any]:
    """Return the part of the search criteria for records that have this metadata."""
    found = [
        {
            "left": {"metadataKey": key},
            "operator": "EQUALS_TO",
            "right": {"metadataValue": {"stringValue": value}},
        }
        for key, value in metadata.items()
    ]
    return {"metadataFilters": found} if found else {}


class AgentCore:
    """The memory whose id a secret holds; the adapter adds the search of its framework.

    All memories of a process share `clients`.
    """

    after_erasure = (
        "records of the last turns may still be extracted: run this again in some minutes"
    )

    def __init__(self, config: AgentCoreConfig, secrets: Secrets, clients: Clients) -> None:
        (ref,), region = config.secret_refs(), config.region
        self.ref, self.region, self.secrets, self.clients = ref, region, secrets, clients
        self.contact = f"the AgentCore memory of secret {ref.reference!r} in {region}"
        self._description: dict[str, Any] | None = None

    async def memory_id(self) -> str:
        """Return the id or the ARN of the memory. Raises MemoryUnavailable."""
        return await secret_of(self.secrets, self.ref)

    async def writes_to(self) -> str:
        return f"{self.region} {(await self.memory_id()).rpartition('/')[2]}"  # of an ARN

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
            required = "{actorId}" if collection.lifetime == "user" else ""  # not of two actors
            templates = [one for one in written_templates(memory) if required in one]
            return {template: NamespaceConfig() for template in templates}
        items = declared.items()
        found = {path: config for name, config in items for path in of_strategies(name, memory)}
        if not found:
            raise MemoryUnavailable("no strategy of the memory writes to them")
        return found

    async def templates(self, collection: MemoryCollection) -> list[str]:
        memory = await with_retries(self.describe)
        declared = collection.namespaces or {}
        found = [path for name in declared for path in of_strategies(name, memory)]
        return [*found, *written_templates(memory)]  # also those that are not read

    async def create_event(self, event: Event) -> None:
        payload = [
            {"conversational": {"role": role, "content": {"text": text}}}
            for role, text, *_ in event.utterances
        ]
        given: dict[str, Any] = {"payload": payload, "eventTimestamp": event.at}
        given |= {"actorId": event.who.actor, "sessionId": event_session(event.who.session_id)}
        if event.project_id is not None:  # the service allows keys in lower case only
            given["extractionConfig"] = {"namespaceVariables": {"projectid": event.project_id}}
        if event.metadata:
            given["metadata"] = {key: {"stringValue": text} for key, text in event.metadata.items()}
        await self.call("record", "create_event", clientToken=event.token, **given)

    async def describe(self) -> dict[str, Any]:
        """Return the resource as GetMemory does; answers are cached, even late ones."""
        if self._description is not None:
            return self._description
        name = (await self.memory_id()).rpartition("/")[2]  # the control plane accepts no ARN

        def get(client: Any) -> dict[str, Any]:
            memory: dict[str, Any] = client.get_memory(memoryId=name)["memory"]
            self._description = memory if memory["status"] == "ACTIVE" else None
            return memory

        return await self.clients.run("control", self.region, get)

    async def sessions(self, actor: str) -> list[str]:
        pages = self._pages("list_sessions", "sessionSummaries", actorId=actor)
        return [session["sessionId"] async for page in pages for session in page]

    async def events(self, actor: str, session: str) -> AsyncIterator[list[str]]:
        given = {"actorId": actor, "sessionId": session, "includePayloads": False}
        async for page in self._pages("list_events", "events", **given):
            yield [event["eventId"] for event in page]

    async def delete_event(self, actor: str, session: str, event: str) -> None:
        given = {"actorId": actor, "sessionId": session, "eventId": event}
        try:
            await with_retries(partial(self.call, "record", "delete_event", **given))
        except MemoryUnavailable as error:
            if error.code != "ResourceNotFoundException":
                raise

    async def records(self, namespace: Namespace) -> AsyncIterator[list[str]]:
        key = "memoryRecordSummaries"
        async for page in self._pages("list_memory_records", key, **namespace.parameter):
            records = [record for record in page if any(map(namespace.holds, record["namespaces"]))]
            yield [record["memoryRecordId"] for record in records]

    async def paths(self, actor: str) -> list[str]:
        return []

    async def delete_records(self, ids: list[str]) -> list[str]:
        records = [{"memoryRecordId": id} for id in ids]
        call = partial(self.call, "record", "batch_delete_memory_records", records=records)
        deleted = (await with_retries(call))["successfulRecords"]
        return [record["memoryRecordId"] for record in deleted]

    async def _pages(
        self, operation: str, key: str, **given: Any
    ) -> AsyncIterator[list[dict[str, Any]]]:
        given["maxResults"] = PAGE
        while True:
            reply = await with_retries(partial(self.call, "record", operation, **given))
            yield reply[key]
            if not reply.get("nextToken"):
                return
            given["nextToken"] = reply["nextToken"]

    async def call(self, call: Call, operation: str, **given: Any) -> Any:
        """Call an operation within its time limit. Raises MemoryUnavailable."""
        id = await self.memory_id()
        return await self.clients.run(
            call, self.region, lambda client: getattr(client, operation)(memoryId=id, **given)
        )
