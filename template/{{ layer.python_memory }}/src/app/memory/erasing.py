"""How what a memory has of one person is erased: in parts, and again when the service is busy."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .backends import Unavailable
from .memories import Memory
from .namespaces import Place

PAUSES = (0.5, 2.0)  # seconds before it is tried again
BUSY = re.compile("Thrott|RetryableConflict|too many requests")


@dataclass
class Report:
    """What was erased of an actor, what could not be, and what else there is to know."""

    actor: str
    sessions: int = 0
    events: int = 0
    records: int = 0
    could_not: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The report as text."""
        counts = [f"{name} erased: {getattr(self, name)}" for name in ("sessions", "events")]
        wrong = [f"could not: {what}" for what in self.could_not]
        notes = [f"note: {what}" for what in self.notes]
        return [*counts, f"records erased: {self.records}", *wrong, *notes]


async def patiently(work: Callable[[], Awaitable[Any]]) -> Any:
    """What it returns, now or soon. Raises Unavailable."""
    for pause in PAUSES:
        try:
            return await work()
        except Unavailable as error:
            if error.is_certain and not BUSY.search(str(error)):
                raise
        await asyncio.sleep(pause)
    return await work()


async def erase_events(memory: Memory, sessions: Iterable[str], report: Report) -> None:
    """Delete what the memory was told in these sessions of the actor. Raises Unavailable."""
    actor = report.actor
    for session in sessions:
        for event in await patiently(partial(memory.events, actor, session)):
            await patiently(partial(memory.delete_event, actor, session, event))
            report.events += 1


async def erase_records(memory: Memory, place: Place, report: Report) -> None:
    """Delete all records of a place, until it has none. Raises Unavailable."""
    was_whole = False
    while True:
        found, before = 0, report.records
        async for ids in _pages(memory, place):
            found += len(ids)
            report.records += await patiently(partial(memory.delete_records, ids)) if ids else 0
        deleted = report.records - before
        # A list may for a while show what was deleted before.
        if not found or (not deleted and was_whole):
            return
        if not deleted:
            raise Unavailable(f"{found} in {place.path} were not deleted")
        was_whole = found == deleted


async def has_any(
    memory: Memory, sessions: Iterable[str], places: Iterable[Place], actor: str
) -> bool:
    """Whether the memory has something of the actor. Raises Unavailable."""
    for session in sessions:
        if await patiently(partial(memory.events, actor, session)):
            return True
    for place in places:
        async for ids in _pages(memory, place):
            if ids:
                return True
    return False


async def _pages(memory: Memory, place: Place) -> AsyncIterator[list[str]]:
    """The ids of the records of a place, some at a time: there may be more than fit in memory."""
    ids, token = await patiently(partial(memory.records, place, None))
    yield ids
    while token:
        ids, token = await patiently(partial(memory.records, place, token))
        yield ids
