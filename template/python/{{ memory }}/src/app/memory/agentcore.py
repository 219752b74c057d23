"""A memory of Amazon Bedrock AgentCore: its calls, answers and errors."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, Literal, TypeVar

import anyio.to_thread

from ..collections.fields import SecretRef
from ..collections.secrets import SecretError, Secrets
from ..log import describe
from .base import Event, MemoryRefused, MemoryUnavailable, Metadata
from .namespaces import Namespace, event_session
from .retry_queue import with_retries
from .settings import MemorySettings

Result = TypeVar("Result")
Kind = Literal["recall", "record", "control"]
PAGE = 100  # the most that the service returns, or takes, at once
SECONDS = 10  # for calls that no turn waits for
THREADS = {"recall": 32, "record": 8, "control": 8}  # hanging calls must not delay other kinds
REFUSED = {"ValidationException", "InvalidInputException"}
BUSY = {409, 429}


class Clients:
    """The clients of the process: one for each kind of call and region, without retries."""

    def __init__(self, settings: MemorySettings) -> None:
        self._seconds: dict[str, int] = {"recall": settings.recall_timeout_seconds}
        self._limiters = {kind: anyio.CapacityLimiter(count) for kind, count in THREADS.items()}
        self._lock, self._clients = Lock(), dict[tuple[Kind, str], Any]()

    async def run(self, kind: Kind, region: str, use: Callable[[Any], Result]) -> Result:
        """Call `use` with a client in a thread, within a time limit. Raises MemoryUnavailable."""
        call = partial(anyio.to_thread.run_sync, self._call, kind, region, use)
        seconds = self._seconds.get(kind, SECONDS) + 1
        try:
            async with asyncio.timeout(seconds):
                return await call(abandon_on_cancel=True, limiter=self._limiters[kind])
        except TimeoutError:
            raise MemoryUnavailable(f"AgentCore Memory: no answer within {seconds} s") from None

    async def warm_up(self, kind: Kind, region: str) -> None:
        """Make a client before its first call, which reports a failure."""
        make, limiter = partial(self.get, kind, region), self._limiters[kind]
        with suppress(Exception):
            await anyio.to_thread.run_sync(make, abandon_on_cancel=True, limiter=limiter)

    def get(self, kind: Kind, region: str) -> Any:
        """Return a client; making the first takes a while."""
        with self._lock:
            if (kind, region) not in self._clients:
                self._clients[kind, region] = self.connect(kind, region)
            return self._clients[kind, region]

    def connect(self, kind: Kind, region: str) -> Any:
        """Make a client."""
        service = "bedrock-agentcore" + ("-control" if kind == "control" else "")
        return self.session(kind).client(service, region_name=region)

    def session(self, kind: Kind) -> Any:
        """Make a session whose clients have time limits."""
        from boto3.session import Session
        from botocore.config import Config
        from botocore.session import get_session

        seconds, core = self._seconds.get(kind, SECONDS), get_session()
        limits: Any = {"connect_timeout": seconds, "read_timeout": seconds}
        limits |= {"max_pool_connections": THREADS[kind]}
        core.set_default_client_config(Config(retries={"total_max_attempts": 1}, **limits))
        return Session(botocore_session=core)

    def _call(self, kind: Kind, region: str, use: Callable[[Any], Result]) -> Result:
        from botocore import exceptions

        try:
            return use(self.get(kind, region))
        except exceptions.ClientError as error:
            code, what = error.response["Error"]["Code"], f"AgentCore Memory: {describe(error)}"
            status = int(error.response["ResponseMetadata"]["HTTPStatusCode"])
            failure = MemoryRefused if code in REFUSED else MemoryUnavailable
            raise failure(what, transient=status >= 500 or status in BUSY, code=code) from None
        except exceptions.ParamValidationError:
            what = "AgentCore Memory: the id or another value is not valid"
            raise MemoryRefused(what, transient=False) from None
        except (exceptions.BotoCoreError, OSError, ValueError) as error:
            raise MemoryUnavailable(f"AgentCore Memory: {describe(error)}") from None


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

    def __init__(self, ref: SecretRef, region: str, secrets: Secrets, clients: Clients) -> None:
        self.ref, self.region, self.secrets, self.clients = ref, region, secrets, clients
        self.contact = f"the AgentCore memory of secret {ref.reference!r} in {region}"
        self._description: dict[str, Any] | None = None

    async def memory_id(self) -> str:
        """Return the id or the ARN of the memory. Raises MemoryUnavailable."""
        try:
            return await self.secrets.get(self.ref)
        except SecretError as error:
            raise MemoryUnavailable(str(error), transient=False) from None

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

    async def call(self, kind: Kind, operation: str, **given: Any) -> Any:
        """Call an operation within its time limit. Raises MemoryUnavailable."""
        id = await self.memory_id()
        return await self.clients.run(
            kind, self.region, lambda client: getattr(client, operation)(memoryId=id, **given)
        )
