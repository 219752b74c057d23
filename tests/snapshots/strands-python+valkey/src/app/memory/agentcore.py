"""One memory of AgentCore Memory: what is asked of it, and what its answers mean."""

from contextlib import suppress
from threading import Lock
from typing import Any

from cachetools import TTLCache

from .agentcore_client import Clients, Kind
from .memories import Event, Record
from .namespaces import Place, event_session
from .options import Options
from .secrets import Secrets

PAGE = 100  # the most that the service gives, or takes, at once


class AgentCore:
    """The memory that a secret names. `clients` are shared by all memories of a process."""

    def __init__(
        self,
        reference: str,
        region: str,
        options: Options,
        secrets: Secrets,
        clients: Clients | None = None,
    ) -> None:
        self._reference, self.region, self._secrets = reference, region, secrets
        self.clients = clients or Clients(options)
        self.contact = f"the AgentCore memory of secret {reference!r} in {region}"
        self._description: dict[str, Any] | None = None
        self._ids: TTLCache[str, str] = TTLCache(1, options.secret_cache_seconds)
        self._lock = Lock()

    async def memory_id(self) -> str:
        """The id or the ARN of the memory. Raises Unavailable."""
        return await self.clients.run("recall", self.region, lambda _: self._id())

    async def retrieve(self, place: Place, query: str, top_k: int) -> list[Record]:
        """At most `top_k` (1 to 100) records for a query of at most 10,000 UTF-16 units."""
        given = {"searchCriteria": {"searchQuery": query, "topK": top_k}, "maxResults": top_k}
        reply = await self._call("recall", "retrieve_memory_records", **place.wire, **given)
        return [_record(one) for one in reply["memoryRecordSummaries"]]

    async def create_event(self, event: Event) -> None:
        """Tell the memory what was said; it extracts what is worth remembering later."""
        payload = [
            {"conversational": {"role": role, "content": {"text": text}}}
            for role, text in event.items
        ]
        given: dict[str, Any] = {"payload": payload, "eventTimestamp": event.at}
        given |= {"actorId": event.who.actor, "sessionId": event_session(event.who.session_id)}
        if event.project is not None:  # the service allows keys in lower case only
            given["extractionConfig"] = {"namespaceVariables": {"projectid": event.project}}
        await self._call("record", "create_event", clientToken=event.token, **given)

    async def sessions(self, actor: str) -> list[str]:
        """The sessions of an actor, by their names in the memory."""
        found = await self._pages("list_sessions", "sessionSummaries", actorId=actor)
        return [one["sessionId"] for one in found]

    async def events(self, actor: str, session: str) -> list[str]:
        """The ids of the events of such a session."""
        given = {"actorId": actor, "sessionId": session, "includePayloads": False}
        return [one["eventId"] for one in await self._pages("list_events", "events", **given)]

    async def delete_event(self, actor: str, session: str, event: str) -> None:
        """Delete an event; one that is gone already counts as deleted."""
        given = {"actorId": actor, "sessionId": session, "eventId": event}

        def delete(client: Any) -> None:
            with suppress(client.exceptions.ResourceNotFoundException):
                client.delete_event(memoryId=self._id(), **given)

        await self.clients.run("record", self.region, delete)

    async def records(self, place: Place, token: str | None) -> tuple[list[str], str | None]:
        """Ids of records of a place, from a token on, and the token of more, if there are more."""
        given = {**place.wire, "maxResults": PAGE} | ({"nextToken": token} if token else {})
        reply = await self._call("record", "list_memory_records", **given)
        rows = reply["memoryRecordSummaries"]
        held = [row["memoryRecordId"] for row in rows if any(map(place.holds, row["namespaces"]))]
        return held, reply.get("nextToken")

    async def delete_records(self, ids: list[str]) -> int:
        """Delete records of this memory, and return how many were deleted."""
        deleted = 0
        for start in range(0, len(ids), PAGE):
            rows = [{"memoryRecordId": id} for id in ids[start : start + PAGE]]
            reply = await self._call("record", "batch_delete_memory_records", records=rows)
            deleted += len(reply["successfulRecords"])
        return deleted

    async def describe(self) -> dict[str, Any]:
        """The resource as GetMemory tells it; an answer is kept, also one that came too late."""

        def ask(client: Any) -> dict[str, Any]:
            name = self._id().rpartition("/")[2]  # the control plane takes no ARN
            memory: dict[str, Any] = client.get_memory(memoryId=name)["memory"]
            self._description = memory if memory["status"] == "ACTIVE" else None
            return memory

        if self._description is not None:
            return self._description
        return await self.clients.run("control", self.region, ask)

    async def _pages(self, operation: str, key: str, **given: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        more: dict[str, Any] = {}
        while True:
            reply = await self._call("record", operation, maxResults=PAGE, **given, **more)
            found += reply[key]
            if not reply.get("nextToken"):
                return found
            more = {"nextToken": reply["nextToken"]}

    async def _call(self, kind: Kind, operation: str, **given: Any) -> Any:
        def call(client: Any) -> Any:
            return getattr(client, operation)(memoryId=self._id(), **given)

        return await self.clients.run(kind, self.region, call)

    def _id(self) -> str:
        # In the threads of the clients: were it in others, a service that hangs would fill those.
        with self._lock:
            known = self._ids.get(self._reference)
        if known is None:
            known = self._secrets.read(self._reference)
            with self._lock:
                self._ids[self._reference] = known
        return known


def _record(summary: dict[str, Any]) -> Record:
    return Record(
        id=summary["memoryRecordId"],
        text=summary["content"].get("text", ""),
        score=summary.get("score", 0.0),
        namespace=next(iter(summary["namespaces"]), ""),
        created_at=summary["createdAt"].isoformat(),
    )
