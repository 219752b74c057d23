"""The protocol of long-term memories, its data types and errors."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

from ..collections.memory_backend import NamespaceConfig
from ..log import describe, place_of
from .namespaces import Namespace, Who

Metadata = Mapping[str, str]
Namespaces = dict[str, NamespaceConfig]
NOTHING: Metadata = MappingProxyType({})


class Utterance(NamedTuple):
    """A text to record, its metadata, and the names of its stores; None: all writable stores."""

    role: Literal["USER", "ASSISTANT"]
    text: str
    metadata: Metadata = NOTHING
    stores: tuple[str, ...] | None = None
    is_fact: bool = False  # added by a tool or your code, so stored unchanged

    def is_for(self, name: str) -> bool:
        """Whether the store receives the text."""
        return self.stores is None or name in self.stores


Entry = tuple[str, list[str]]  # the id and the paths of a record
Turns = Sequence[Sequence[Utterance]]
"""The texts of each turn, in order."""


@dataclass(frozen=True)
class Record:
    """A memory, and its relevance to the query, from 0 to 1."""

    id: str
    text: str
    score: float
    namespace: str
    created_at: str  # ISO 8601


@dataclass(frozen=True)
class Event:
    """The texts of one write to a memory; the token makes retries idempotent."""

    identity: Who
    utterances: list[Utterance]  # at most 100, each of at most 100,000 UTF-16 units
    token: str
    start_times: Sequence[datetime]  # the start times of its turns
    project_id: str | None = None  # the value of {projectId}, if namespaces need it

    @property
    def at(self) -> datetime:
        """The time of the event."""
        return self.start_times[0]

    @property
    def metadata(self) -> Metadata:
        """The metadata that all texts of the event share."""
        return self.utterances[0].metadata


class MemoryUnavailable(Exception):
    """The memory failed. The message is safe to log: no secrets, prompts or replies."""

    def __init__(self, message: str, *, transient: bool = True, code: str = "") -> None:
        super().__init__(message)
        self.transient = transient
        self.code = code  # the AWS error code


class MemoryRefused(MemoryUnavailable):
    """The memory rejects the request, and would reject a retry."""


class Memory(Protocol):
    """The long-term memory of one collection.

    Each call has a time limit, and raises MemoryUnavailable.
    """

    contact: str  # the file or service for messages, without secrets
    after_erasure: str  # a note for the report of `forget`, or ""

    async def namespaces(self, collection: "MemoryCollection") -> Namespaces:
        """Return the namespaces of a collection to search, by template."""

    async def templates(self, collection: "MemoryCollection") -> list[str]:
        """Return the templates of all namespaces that may hold records of a collection."""

    async def writes_to(self) -> str:
        """Return the name of a resource that only one collection may write to, or ""."""

    async def warm_up(self, collection: "MemoryCollection") -> None:
        """Prepare clients so that the first turn does not wait. Never raises."""

    async def retrieve(
        self, identity: Who, namespace: Namespace, query: str, limit: int, metadata: Metadata
    ) -> list[Record]:
        """Return at most `limit` (1 to 100) records for a query of at most 10,000 UTF-16 units.

        Return only records that have all of `metadata`.
        """

    async def create_event(self, event: Event) -> None:
        """Send the texts of turns, from which the memory extracts records."""

    async def sessions(self, actor: str) -> list[str]:
        """Return the sessions of an actor, by their names in the memory."""

    async def actors(self) -> list[str]:
        """Return all actors with sessions."""

    def events(self, actor: str, session: str) -> AsyncIterator[list[str]]:
        """Yield the ids of the events of a session, page by page."""

    async def delete_event(self, actor: str, session: str, event: str) -> None:
        """Delete an event. Idempotent."""

    def records(self, namespace: Namespace) -> AsyncIterator[list[str]]:
        """Yield the ids of all records in a namespace, page by page."""

    def entries(self, namespace: Namespace) -> AsyncIterator[list[Entry]]:
        """Yield the records in a namespace with their paths, page by page."""

    async def delete_records(self, ids: list[str]) -> list[str]:
        """Delete a page of records, and return the ids that the memory reports as deleted."""


@dataclass
class MemoryCollection:
    """A collection of long-term memory as this agent uses it."""

    id: str
    lifetime: str
    memory: Memory
    traced: Memory  # the same memory, with tracing spans
    description: str = ""  # from the collection file, for models
    is_read: bool = True
    is_writable: bool = True
    is_erasable: bool = True
    batch_size: int = 1  # maximum number of texts per event that joins several turns
    extracts: bool = False  # whether a model extracts facts before it stores them
    needs_project: bool = False
    project_id: str | None = None  # the value of {projectId}, if namespaces need it
    # Search settings by namespace template. None: the resource defines the namespaces.
    namespaces: Namespaces | None = None


def describe_failure(error: BaseException) -> str:
    """Return the reason for a failure, safe to log."""
    return str(error) if isinstance(error, MemoryUnavailable) else describe(error)


def locate_failure(error: BaseException) -> str:
    """Return the reason for a failure in an owner's code, with file and line, for the log."""
    is_known = isinstance(error, MemoryUnavailable)
    return str(error) if is_known else describe(error) + place_of(error)
