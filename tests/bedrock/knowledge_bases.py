"""Knowledge bases without HTTP: one method for each operation, with the state behind them.

Where neither AWS's model nor its documentation says what happens, this is what happens here: a
document that is ingested again is replaced; one is found once it is indexed, and not while it is
deleted; a list shows both. Scores are those of tests.agentcore.search.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from botocore import xform_name

from tests.agentcore.search import score, words
from tests.agentcore.state import Clock, Given, Record, ServiceError

MAX_TEXT = 5_242_880
COMMON = {
    "roleArn": "arn:aws:iam::123456789012:role/kb",
    "createdAt": datetime(2026, 1, 2, tzinfo=UTC),
}


@dataclass
class Document:
    text: str
    attributes: dict[str, Any]
    indexed: float  # when it is found
    gone: float = float("inf")  # when it is no longer listed
    refused: tuple[str, str] | None = None  # the status, and its reason, in place of INDEXED


@dataclass
class Base:
    type: str = "VECTOR"
    status: str = "ACTIVE"
    source_type: str = "CUSTOM"
    source_status: str = "AVAILABLE"
    documents: dict[str, Document] = field(default_factory=dict)


class KnowledgeBases:
    """All knowledge bases, each with the one data source of the same id with DS in front."""

    def __init__(self) -> None:
        self.lock, self.clock = threading.RLock(), Clock()
        self.bases: dict[str, Base] = {}
        self.ingestion_delay = self.deletion_delay = 0.0  # seconds
        self.refused: tuple[str, str] | None = None  # what becomes of new documents
        self.leaks = False  # whether a search ignores its filter

    def call(self, operation: str, given: Given) -> Given:
        method: Callable[[Given], Given] = getattr(self, xform_name(operation))
        with self.lock:
            return method(given)

    def retrieve(self, given: Given) -> Given:
        base = self._find(given["knowledgeBaseId"].rpartition("/")[2])
        ((name, search),) = given["retrievalConfiguration"].items()
        if name != {"VECTOR": "vector", "MANAGED": "managed"}[base.type] + "SearchConfiguration":
            raise ServiceError("ValidationException", f"{name} is not for a {base.type} base")
        now, query = self.clock.now(), words(given["retrievalQuery"]["text"])
        found = [
            (_score(query, document.text), id, document)
            for id, document in base.documents.items()
            if document.indexed <= now and document.gone == float("inf") and not document.refused
            if self.leaks or _passes(search.get("filter"), document.attributes)
        ]
        found.sort(key=lambda one: (-one[0], one[1]))
        results = [
            {
                "content": {"type": "TEXT", "text": document.text},
                "location": {"type": "CUSTOM", "customDocumentLocation": {"id": id}},
                "score": value,
                "metadata": document.attributes,
            }
            for value, id, document in found[: search.get("numberOfResults", 5)]
        ]
        return {"retrievalResults": results}

    def ingest_knowledge_base_documents(self, given: Given) -> Given:
        base, details = self._source(given), []
        now = self.clock.now()
        for document in given["documents"]:
            content = document["content"]
            if content["dataSourceType"] != "CUSTOM" or base.source_type != "CUSTOM":
                raise ServiceError("ValidationException", "The data source is of another type")
            custom = content["custom"]
            id = custom["customDocumentIdentifier"]["id"]
            attributes = {
                one["key"]: one["value"]["stringValue"]
                for one in document["metadata"]["inlineAttributes"]
            }
            text = custom["inlineContent"]["textContent"]["data"]
            indexed = now + self.ingestion_delay
            base.documents[id] = Document(text, attributes, indexed, refused=self.refused)
            details.append(self._detail(given, id, "STARTING"))
        return {"documentDetails": details}

    def list_knowledge_base_documents(self, given: Given) -> Given:
        base, now = self._source(given), self.clock.now()
        for id in [id for id, one in base.documents.items() if one.gone <= now]:
            del base.documents[id]
        ids = sorted(id for id in base.documents if id > given.get("nextToken", ""))
        shown = ids[: given.get("maxResults", 100)]
        details = [self._known(given, base, id, now) for id in shown]
        return {"documentDetails": details} | ({"nextToken": shown[-1]} if ids != shown else {})

    def get_knowledge_base_documents(self, given: Given) -> Given:
        base, now = self._source(given), self.clock.now()
        ids = [it["custom"]["id"] for it in given["documentIdentifiers"]]
        return {"documentDetails": [self._known(given, base, id, now) for id in ids]}

    def delete_knowledge_base_documents(self, given: Given) -> Given:
        base, details = self._source(given), []
        for identifier in given["documentIdentifiers"]:
            id = identifier["custom"]["id"]
            document = base.documents.get(id)
            if document is not None:
                document.gone = self.clock.now() + self.deletion_delay
            details.append(self._detail(given, id, "DELETING" if document else "NOT_FOUND"))
        return {"documentDetails": details}

    def get_knowledge_base(self, given: Given) -> Given:
        id = given["knowledgeBaseId"]
        base = self._find(id)
        shown = {
            "knowledgeBaseId": id,
            "name": "notes",
            "knowledgeBaseArn": f"arn:aws:bedrock:us-east-1:123456789012:knowledge-base/{id}",
            "knowledgeBaseConfiguration": {"type": base.type},
            "status": base.status,
            "updatedAt": COMMON["createdAt"],
            **COMMON,
        }
        return {"knowledgeBase": shown}

    def get_data_source(self, given: Given) -> Given:
        base = self._source(given)
        shown = {
            "knowledgeBaseId": given["knowledgeBaseId"],
            "dataSourceId": given["dataSourceId"],
            "name": "texts",
            "status": base.source_status,
            "dataSourceConfiguration": {"type": base.source_type},
            "createdAt": COMMON["createdAt"],
            "updatedAt": COMMON["createdAt"],
        }
        return {"dataSource": shown}

    def texts(self, id: str, namespace: str | None = None) -> list[str]:
        """What a knowledge base keeps, of a namespace or all, oldest first."""
        with self.lock:
            kept = self.bases[id].documents.values()
            return [
                one.text
                for one in kept
                if one.gone == float("inf") and namespace in (None, one.attributes["namespace"])
            ]

    def _find(self, id: str) -> Base:
        if id not in self.bases:
            raise ServiceError("ResourceNotFoundException", f"Knowledge base {id} does not exist")
        return self.bases[id]

    def _source(self, given: Given) -> Base:
        base = self._find(given["knowledgeBaseId"])
        if given["dataSourceId"] != source_of(given["knowledgeBaseId"]):
            raise ServiceError("ResourceNotFoundException", "The data source does not exist")
        return base

    def _known(self, given: Given, base: Base, id: str, now: float) -> Given:
        document = base.documents.get(id)
        if document is None:
            return self._detail(given, id, "NOT_FOUND")
        status = _status(document, now)
        if document.refused is None or status != "INDEXED":
            return self._detail(given, id, status)
        status, reason = document.refused
        return self._detail(given, id, status) | {"statusReason": reason}

    def _detail(self, given: Given, id: str, status: str) -> Given:
        identifier = {"dataSourceType": "CUSTOM", "custom": {"id": id}}
        place = {name: given[name] for name in ("knowledgeBaseId", "dataSourceId")}
        return {**place, "identifier": identifier, "status": status}


def source_of(base: str) -> str:
    """The id of a knowledge base's data source."""
    return f"DS{base[2:]}"


def _status(document: Document, now: float) -> str:
    if document.gone != float("inf"):
        return "DELETE_IN_PROGRESS"
    return "INDEXED" if document.indexed <= now else "IN_PROGRESS"


def _score(query: frozenset[str], text: str) -> float:
    now = datetime.now(UTC)
    record = Record("", text, "", "", 0, 0, now, {}, words=words(text))
    return score(query, record)


def _passes(filter: Given | None, attributes: Given) -> bool:
    if not filter:
        return True
    ((kind, value),) = filter.items()
    if kind == "andAll":
        return all(_passes(one, attributes) for one in value)
    if kind == "equals":
        return bool(attributes.get(value["key"]) == value["value"])
    raise ServiceError("ValidationException", f"no filter {kind} here")
