"""Long-term memory of an actor outside turns, for routes, jobs and capabilities."""

import asyncio
import re
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..capability import Capability
from ..contract import ACTOR_ID
from .base import MemoryCollection, Metadata, describe_failure
from .hits import Found
from .record import events_of, to_record

if TYPE_CHECKING:  # it imports the framework, which --help does not need
    from .long_term import LongTermMemory

SESSION = "outside-turns"  # the session id of added texts


class NotAdded(Exception):
    """Some stores did not add the text; `failures` maps their names to the reasons."""

    def __init__(self, failures: dict[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {reason}" for name, reason in failures.items()))
        self.failures = failures


class ActorMemory:
    """The long-term memory of one actor: the collections and the owner's stores."""

    def __init__(self, long_term: "LongTermMemory", actor: str) -> None:
        if not re.fullmatch(ACTOR_ID, actor) or "/" in actor:
            raise ValueError("The actor id is invalid or contains a /.")
        self._long_term = long_term
        self._turn = long_term.turn_of(actor, SESSION)

    async def search(
        self,
        query: str,
        *,
        stores: Collection[str] | None = None,
        max_search_results: int | None = None,
        metadata: Metadata | None = None,
    ) -> Found:
        """Return memories as `memory.search` does in a turn. Raises ValueError."""
        return await self._turn.find(query, stores, max_search_results, metadata)

    async def add(
        self, text: str, *, stores: Collection[str] | None = None, metadata: Metadata | None = None
    ) -> None:
        """Send text to the stores now, and wait for them.

        Raises ValueError as `memory.add` does, and RuntimeError if no memory is writable.
        Raises NotAdded if some stores failed: retry only these stores, because the others would
        store the text twice.
        """
        self._turn.add(text, stores, metadata)
        added = self._turn.added.pop()
        texts = to_record(self._turn.policy, self._turn.identity, [added])
        failures: dict[str, str] = {}

        async def send(writer: MemoryCollection) -> None:
            try:
                for event in events_of(self._turn.identity, texts, [datetime.now(UTC)], writer):
                    await writer.traced.create_event(event)
            except Exception as error:  # noqa: BLE001 (the other stores continue)
                failures[writer.id] = describe_failure(error)

        async def send_to_own(store: Any) -> None:
            try:
                await store.send(added.text, added.metadata)
            except Exception as error:  # noqa: BLE001
                failures[store.name] = describe_failure(error)

        writers = [it for it in self._long_term.writers if added.is_for(it.id)]
        stores = [it for it in self._turn.stores if it.takes_texts and added.is_for(it.name)]
        await asyncio.gather(*map(send, writers), *map(send_to_own, stores))
        if failures:
            raise NotAdded(failures)


def of_actor(capabilities: Iterable[Capability], actor: str) -> ActorMemory:
    """Return the memory of an actor. In a route, `capabilities` are those of its Runtime.

    Raises ValueError for an invalid actor id.
    """
    from .long_term import LongTermMemory

    return ActorMemory(LongTermMemory.find(capabilities), actor)
