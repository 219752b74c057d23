"""A memory in an Amazon Bedrock knowledge base: its API calls.

Texts are documents in a data source of type CUSTOM. Their attribute `namespace` names the owner.
Their ids also begin with the namespace, because lists of documents omit attributes.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from ..collections.knowledge_base_backend import KnowledgeBaseConfig
from ..collections.secrets import Secrets
from .aws import Call, Clients, secret_of
from .base import Entry, Event, MemoryCollection, MemoryUnavailable, Metadata, Namespaces, Record
from .namespaces import Namespace, Who, default_template, resolve
from .retry_queue import with_retries

log = logging.getLogger(__name__)
PAGE = 1000  # maximum number of items per list
DOCUMENTS = 10  # maximum number of items per write
MAX_KEY_CHARS = 100  # maximum length of a filter key
STATUS_PAUSE = 5  # seconds between checks of document statuses
PENDING = ("STARTING", "PENDING", "IN_PROGRESS")
# Statuses of deleted documents, and of documents that the service rejected.
DELETED = ("DELETING", "DELETE_IN_PROGRESS", "NOT_FOUND")
REJECTED = ("FAILED", "IGNORED")


class KnowledgeBaseClients(Clients):
    name = "Knowledge Bases"
    recall = "bedrock-agent-runtime"
    record = control = "bedrock-agent"


class KnowledgeBase:
    """A knowledge base; its id is in a secret. All memories of a process share `clients`."""

    after_erasure = "searches may return deleted documents for a few more minutes"

    def __init__(
        self, config: KnowledgeBaseConfig, lifetime: str, secrets: Secrets, clients: Clients
    ) -> None:
        self.config = config
        self._secrets = secrets
        self._clients = clients
        # Turns are written to the first namespace only.
        self._template = next(iter(config.retrieval_config or [default_template(lifetime)]))
        self._unconfirmed = list[str]()  # ids of documents with unknown status
        self._next_check = 0.0
        ref, *_ = config.secret_refs()
        self.contact = f"the knowledge base of secret {ref.reference!r} in {config.region}"

    async def namespaces(self, collection: MemoryCollection) -> Namespaces:
        return collection.namespaces or {}

    async def templates(self, collection: MemoryCollection) -> list[str]:
        return [*(collection.namespaces or {})]

    async def writes_to(self) -> str:
        return ""  # collections can share a data source: their namespaces differ

    async def warm_up(self, collection: MemoryCollection) -> None:
        calls: list[Call] = ["recall"] if collection.is_read else []
        calls += ["record"] if collection.is_writable else []
        await asyncio.gather(*[self._clients.warm_up(call, self.config.region) for call in calls])

    async def retrieve(
        self, identity: Who, namespace: Namespace, query: str, limit: int, metadata: Metadata
    ) -> list[Record]:
        attributes = {**metadata, "namespace": namespace.path}
        filters: list[Any] = [{"equals": {"key": k, "value": v}} for k, v in attributes.items()]
        filter = filters[0] if len(filters) == 1 else {"andAll": filters}
        search = {"numberOfResults": limit, "filter": filter}
        kind = f"{self.config.search}SearchConfiguration"
        parameters = {"retrievalQuery": {"text": query}, "retrievalConfiguration": {kind: search}}
        base = await secret_of(self._secrets, self.config.secret_refs()[0])
        reply = await self._call("recall", "retrieve", knowledgeBaseId=base, **parameters)
        return [
            _record(result) for result in reply["retrievalResults"] if "text" in result["content"]
        ]

    async def create_event(self, event: Event) -> None:
        """Ingest the texts as documents. A retry replaces them with equal documents."""
        path = resolve(self._template, event.identity).path
        attributes = {**event.metadata, "namespace": path, "created_at": event.at.isoformat()}
        documents = [
            _document(f"{path}{event.token}-{number}", utterance.text, attributes)
            for number, utterance in enumerate(event.utterances)
            if utterance.role == "USER"
        ]
        for chunk in _chunks(documents):
            ids = [it["content"]["custom"]["customDocumentIdentifier"]["id"] for it in chunk]
            parameters = {**await self._location(), "documents": chunk}
            reply = await self._call("record", "ingest_knowledge_base_documents", **parameters)
            for detail in reply.get("documentDetails", []):
                if detail["status"] in REJECTED:
                    raise MemoryUnavailable(f"Knowledge Bases: a document is {detail['status']}")
            await self._check_statuses()
            self._unconfirmed = self._unconfirmed or ids

    async def _check_statuses(self) -> None:
        """Log the status of documents that were accepted earlier. Never raises."""
        ids = self._unconfirmed
        now = time.monotonic()
        if not ids or now < self._next_check:
            return
        self._unconfirmed = []
        self._next_check = now + STATUS_PAUSE
        try:
            parameters: dict[str, Any] = await self._location()
            parameters["documentIdentifiers"] = [
                {"dataSourceType": "CUSTOM", "custom": {"id": id}} for id in ids
            ]
            reply = await self._call("record", "get_knowledge_base_documents", **parameters)
        except MemoryUnavailable as error:
            log.warning("cannot check whether texts are indexed: %s", error)
            return
        details = reply.get("documentDetails", [])
        if rejected := sum(detail["status"] in REJECTED for detail in details):
            problem = "documents are not indexed: run `check --connect` for the reasons"
            log.error("%s: %d of %d %s", self.contact, rejected, len(details), problem)
        pending = [it["identifier"]["custom"]["id"] for it in details if it["status"] in PENDING]
        self._unconfirmed = self._unconfirmed or pending

    async def describe(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return the knowledge base, and its data source if the file names one."""
        refs = self.config.secret_refs()
        ids = [await secret_of(self._secrets, ref) for ref in refs]
        base = await self._call("control", "get_knowledge_base", knowledgeBaseId=ids[0])
        if len(ids) == 1:
            return base["knowledgeBase"], None
        parameters = {"knowledgeBaseId": ids[0], "dataSourceId": ids[1]}
        source = await self._call("control", "get_data_source", **parameters)
        return base["knowledgeBase"], source["dataSource"]

    async def sessions(self, actor: str) -> list[str]:
        return []

    async def actors(self) -> list[str]:
        return []

    async def events(self, actor: str, session: str) -> AsyncIterator[list[str]]:
        yield []

    async def delete_event(self, actor: str, session: str, event: str) -> None:
        pass

    async def documents(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield the details of all documents in the data source, page by page."""
        parameters: dict[str, Any] = {**await self._location(), "maxResults": PAGE}
        while True:
            call = partial(self._call, "record", "list_knowledge_base_documents", **parameters)
            reply = await with_retries(call)
            yield [
                detail
                for detail in reply["documentDetails"]
                if detail["status"] not in DELETED and "custom" in detail["identifier"]
            ]
            if not reply.get("nextToken"):
                return
            parameters["nextToken"] = reply["nextToken"]

    async def records(self, namespace: Namespace) -> AsyncIterator[list[str]]:
        async for page in self.entries(namespace):
            yield [id for id, _ in page]

    async def entries(self, namespace: Namespace) -> AsyncIterator[list[Entry]]:
        async for page in self.documents():
            ids = [detail["identifier"]["custom"]["id"] for detail in page]
            entries = [(id, id.rpartition("/")[0]) for id in ids]
            yield [(id, [path]) for id, path in entries if namespace.holds(path)]

    async def delete_records(self, ids: list[str]) -> list[str]:
        deleted: list[str] = []
        for chunk in _chunks(ids):
            parameters: dict[str, Any] = await self._location()
            parameters["documentIdentifiers"] = [
                {"dataSourceType": "CUSTOM", "custom": {"id": id}} for id in chunk
            ]
            call = partial(self._call, "record", "delete_knowledge_base_documents", **parameters)
            details = (await with_retries(call)).get("documentDetails", [])
            deleted += [
                detail["identifier"]["custom"]["id"]
                for detail in details
                if detail["status"] in DELETED
            ]
        return deleted

    async def _location(self) -> dict[str, str]:
        if self.config.data_source_id_secret is None:
            problem = "its file has no data source: add data_source_id_secret"
            raise MemoryUnavailable(problem, transient=False)
        base, source = [await secret_of(self._secrets, it) for it in self.config.secret_refs()]
        return {"knowledgeBaseId": base, "dataSourceId": source}

    async def _call(self, call: Call, operation: str, **parameters: Any) -> Any:
        return await self._clients.run(
            call, self.config.region, lambda client: getattr(client, operation)(**parameters)
        )


def _chunks(items: list[Any]) -> list[list[Any]]:
    return [items[at : at + DOCUMENTS] for at in range(0, len(items), DOCUMENTS)]


def _document(id: str, text: str, attributes: Metadata) -> dict[str, Any]:
    inline = [
        {"key": key, "value": {"type": "STRING", "stringValue": value}}
        for key, value in attributes.items()
        # The service cannot filter by empty values or longer keys.
        if value and len(key) <= MAX_KEY_CHARS
    ]
    content = {"type": "TEXT", "textContent": {"data": text}}
    custom = {"customDocumentIdentifier": {"id": id}, "sourceType": "IN_LINE"}
    return {
        "content": {"dataSourceType": "CUSTOM", "custom": {**custom, "inlineContent": content}},
        "metadata": {"type": "IN_LINE_ATTRIBUTE", "inlineAttributes": inline},
    }


def _record(result: dict[str, Any]) -> Record:
    attributes = result.get("metadata", {})
    location = result.get("location", {}).get("customDocumentLocation", {})
    return Record(
        id=location.get("id", ""),
        text=result["content"]["text"],
        score=result.get("score", 1.0),  # without a score, the rank decides
        namespace=str(attributes.get("namespace", "")),
        created_at=str(attributes.get("created_at", "")),
    )
