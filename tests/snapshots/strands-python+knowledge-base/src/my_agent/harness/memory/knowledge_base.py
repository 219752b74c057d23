"""A memory in a knowledge base of Amazon Bedrock: its calls and answers.

Texts are documents of a data source of type CUSTOM. The attribute `namespace` of each says whose it
is, and its id begins with the namespace, because a list of documents shows no attributes.
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
from .base import Event, MemoryCollection, MemoryUnavailable, Metadata, Namespaces, Record
from .namespaces import Namespace, Who, default_template, resolve
from .retry_queue import with_retries

log = logging.getLogger(__name__)
PAGE, DOCUMENTS = 1000, 10  # the most that the service lists, and takes, at once
MAX_KEY_CHARS = 100  # of what a search can filter by
LOOK_PAUSE = 5  # seconds between two looks at earlier documents
PENDING = ("STARTING", "PENDING", "IN_PROGRESS")
# Of documents that are gone, and of those that the service did not take.
GONE, REFUSED = ("DELETING", "DELETE_IN_PROGRESS", "NOT_FOUND"), ("FAILED", "IGNORED")


class KnowledgeBaseClients(Clients):
    name, recall = "Knowledge Bases", "bedrock-agent-runtime"
    record = control = "bedrock-agent"


class KnowledgeBase:
    """The knowledge base whose id a secret holds. All of a process share `clients`."""

    after_erasure = "a knowledge base may find deleted documents for some minutes more"

    def __init__(
        self, config: KnowledgeBaseConfig, lifetime: str, secrets: Secrets, clients: Clients
    ) -> None:
        self.config, self._secrets, self._clients = config, secrets, clients
        # The first namespace is the one that is written to.
        self._template = next(iter(config.retrieval_config or [default_template(lifetime)]))
        self._unknown = list[str]()  # ids of documents that may not be indexed yet
        self._next_look = 0.0
        ref, *_ = config.secret_refs()
        self.contact = f"the knowledge base of secret {ref.reference!r} in {config.region}"

    async def namespaces(self, collection: MemoryCollection) -> Namespaces:
        return collection.namespaces or {}

    async def templates(self, collection: MemoryCollection) -> list[str]:
        return [*(collection.namespaces or {})]

    async def writes_to(self) -> str:
        return ""  # documents of several collections have namespaces of their own

    async def warm_up(self, collection: MemoryCollection) -> None:
        calls: list[Call] = ["recall"] if collection.is_read else []
        calls += ["record"] if collection.is_writable else []
        await asyncio.gather(*[self._clients.warm_up(call, self.config.region) for call in calls])

    async def retrieve(
        self, who: Who, namespace: Namespace, query: str, limit: int, metadata: Metadata
    ) -> list[Record]:
        wanted = {**metadata, "namespace": namespace.path}
        filters: list[Any] = [{"equals": {"key": k, "value": v}} for k, v in wanted.items()]
        filter = filters[0] if len(filters) == 1 else {"andAll": filters}
        search = {"numberOfResults": limit, "filter": filter}
        kind = f"{self.config.search}SearchConfiguration"
        given = {"retrievalQuery": {"text": query}, "retrievalConfiguration": {kind: search}}
        base = await secret_of(self._secrets, self.config.secret_refs()[0])
        reply = await self._call("recall", "retrieve", knowledgeBaseId=base, **given)
        return [
            _record(result) for result in reply["retrievalResults"] if "text" in result["content"]
        ]

    async def create_event(self, event: Event) -> None:
        """Ingest the texts as documents; a repetition replaces them by the same."""
        path = resolve(self._template, event.who).path
        attributes = {**event.metadata, "namespace": path, "created_at": event.at.isoformat()}
        documents = [
            _document(f"{path}{event.token}-{number}", utterance.text, attributes)
            for number, utterance in enumerate(event.utterances)
            if utterance.role == "USER"
        ]
        for some in _parts(documents):
            ids = [it["content"]["custom"]["customDocumentIdentifier"]["id"] for it in some]
            given = {**await self._place(), "documents": some}
            reply = await self._call("record", "ingest_knowledge_base_documents", **given)
            for detail in reply.get("documentDetails", []):
                if detail["status"] in REFUSED:
                    raise MemoryUnavailable(f"Knowledge Bases: a document is {detail['status']}")
            await self._look()
            self._unknown = self._unknown or ids

    async def _look(self) -> None:
        """Log what became of documents that were accepted earlier. Never raises."""
        ids = self._unknown
        now = time.monotonic()
        if not ids or now < self._next_look:
            return
        self._unknown = []
        self._next_look = now + LOOK_PAUSE
        try:
            given: dict[str, Any] = await self._place()
            given["documentIdentifiers"] = [
                {"dataSourceType": "CUSTOM", "custom": {"id": id}} for id in ids
            ]
            reply = await self._call("record", "get_knowledge_base_documents", **given)
        except MemoryUnavailable as error:
            log.warning("it is not known whether texts are indexed: %s", error)
            return
        details = reply.get("documentDetails", [])
        if refused := sum(detail["status"] in REFUSED for detail in details):
            what = "documents are not indexed: `check --connect` says why"
            log.error("%s: %d of %d %s", self.contact, refused, len(details), what)
        pending = [it["identifier"]["custom"]["id"] for it in details if it["status"] in PENDING]
        self._unknown = self._unknown or pending

    async def describe(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return the knowledge base, and the data source if the file names one."""
        refs = self.config.secret_refs()
        ids = [await secret_of(self._secrets, ref) for ref in refs]
        base = await self._call("control", "get_knowledge_base", knowledgeBaseId=ids[0])
        if len(ids) == 1:
            return base["knowledgeBase"], None
        given = {"knowledgeBaseId": ids[0], "dataSourceId": ids[1]}
        source = await self._call("control", "get_data_source", **given)
        return base["knowledgeBase"], source["dataSource"]

    async def sessions(self, actor: str) -> list[str]:
        return []

    async def events(self, actor: str, session: str) -> AsyncIterator[list[str]]:
        yield []

    async def delete_event(self, actor: str, session: str, event: str) -> None:
        pass

    async def documents(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield the details of all documents of the data source, page by page."""
        given: dict[str, Any] = {**await self._place(), "maxResults": PAGE}
        while True:
            call = partial(self._call, "record", "list_knowledge_base_documents", **given)
            reply = await with_retries(call)
            yield [
                detail
                for detail in reply["documentDetails"]
                if detail["status"] not in GONE and "custom" in detail["identifier"]
            ]
            if not reply.get("nextToken"):
                return
            given["nextToken"] = reply["nextToken"]

    async def records(self, namespace: Namespace) -> AsyncIterator[list[str]]:
        async for page in self.documents():
            ids = [detail["identifier"]["custom"]["id"] for detail in page]
            yield [id for id in ids if namespace.holds(id.rpartition("/")[0])]

    async def paths(self, actor: str) -> list[str]:
        found = set[str]()
        async for page in self.documents():
            ids = [detail["identifier"]["custom"]["id"] for detail in page]
            found.update(f"{id.rpartition('/')[0]}/" for id in ids)
        return [path for path in found if actor in path.split("/")]

    async def delete_records(self, ids: list[str]) -> list[str]:
        deleted: list[str] = []
        for some in _parts(ids):
            given: dict[str, Any] = await self._place()
            given["documentIdentifiers"] = [
                {"dataSourceType": "CUSTOM", "custom": {"id": id}} for id in some
            ]
            call = partial(self._call, "record", "delete_knowledge_base_documents", **given)
            details = (await with_retries(call)).get("documentDetails", [])
            deleted += [
                detail["identifier"]["custom"]["id"]
                for detail in details
                if detail["status"] in GONE
            ]
        return deleted

    async def _place(self) -> dict[str, str]:
        if self.config.data_source_id_secret is None:
            what = "its file names no data source: add data_source_id_secret"
            raise MemoryUnavailable(what, transient=False)
        base, source = [await secret_of(self._secrets, it) for it in self.config.secret_refs()]
        return {"knowledgeBaseId": base, "dataSourceId": source}

    async def _call(self, call: Call, operation: str, **given: Any) -> Any:
        return await self._clients.run(
            call, self.config.region, lambda client: getattr(client, operation)(**given)
        )


def _parts(items: list[Any]) -> list[list[Any]]:
    return [items[at : at + DOCUMENTS] for at in range(0, len(items), DOCUMENTS)]


def _document(id: str, text: str, attributes: Metadata) -> dict[str, Any]:
    inline = [
        {"key": key, "value": {"type": "STRING", "stringValue": value}}
        for key, value in attributes.items()
        if value and len(key) <= MAX_KEY_CHARS  # others cannot be searched for
    ]
    content = {"type": "TEXT", "textContent": {"data": text}}
    custom = {"customDocumentIdentifier": {"id": id}, "sourceType": "IN_LINE"}
    return {
        "content": {"dataSourceType": "CUSTOM", "custom": {**custom, "inlineContent": content}},
        "metadata": {"type": "IN_LINE_ATTRIBUTE", "inlineAttributes": inline},
    }


def _record(result: dict[str, Any]) -> Record:
    known = result.get("metadata", {})
    location = result.get("location", {}).get("customDocumentLocation", {})
    return Record(
        id=location.get("id", ""),
        text=result["content"]["text"],
        score=result.get("score", 1.0),  # one without a score is as good as its place
        namespace=str(known.get("namespace", "")),
        created_at=str(known.get("created_at", "")),
    )
