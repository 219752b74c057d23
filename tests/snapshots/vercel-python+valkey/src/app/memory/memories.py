"""What a long-term memory can do, whatever keeps it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from .namespaces import Place, Who

Item = tuple[Literal["USER", "ASSISTANT"], str]  # who said it, and what


@dataclass(frozen=True)
class Record:
    """What is remembered: its score is from 0 to 1, and 0 where nothing was searched for."""

    id: str
    text: str
    score: float
    namespace: str
    created_at: str  # ISO 8601


@dataclass(frozen=True)
class Event:
    """What is told to a memory at once; sent again it is the same event, by its token."""

    who: Who
    items: list[Item]  # at most 100, each of at most 100,000 UTF-16 units
    token: str
    at: datetime
    project: str | None = None  # the value of {projectId}, if namespaces need it


class Memory(Protocol):
    """The long-term memory of one collection. Every call is bounded in time.

    Each raises Unavailable, or Refused for what will never succeed.
    """

    contact: str  # what it contacts, without secrets

    async def retrieve(self, place: Place, query: str, top_k: int) -> list[Record]:
        """At most `top_k` (1 to 100) records for a query of at most 10,000 UTF-16 units."""

    async def create_event(self, event: Event) -> None:
        """Tell the memory what was said; it extracts what is worth remembering later."""

    async def sessions(self, actor: str) -> list[str]:
        """The sessions of an actor, by their names in the memory."""

    async def events(self, actor: str, session: str) -> list[str]:
        """The ids of the events of such a session."""

    async def delete_event(self, actor: str, session: str, event: str) -> None:
        """Delete an event; one that is gone already counts as deleted."""

    async def records(self, place: Place, token: str | None) -> tuple[list[str], str | None]:
        """Ids of records of a place, from a token on, and the token of more, if there are more."""

    async def delete_records(self, ids: list[str]) -> int:
        """Delete records of this memory, and return how many were deleted."""

    async def describe(self) -> dict[str, Any]:
        """The resource as GetMemory tells it; {} for one that is no resource."""
