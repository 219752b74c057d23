"""Committed turns on their way to long-term memory: one event for each, beside the turns."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from uuid import uuid4

from ..contract import is_blank, well_formed
from .memories import Event, Item, Memory
from .namespaces import Who
from .outbox import Outbox, Waiting, Work

LONGEST_TEXT = 100_000  # UTF-16 units, as the service counts
MOST_ITEMS = 100  # of one event


@dataclass(frozen=True)
class Writer:
    """A collection that is written to, and how."""

    collection_id: str
    memory: Memory
    batch_size: int = 1  # texts up to which turns that wait are joined
    project: str | None = None  # the value of {projectId}, if namespaces need it


class Recorder:
    """Takes what turns committed, and tells it to all writers. Never raises, and delays no turn."""

    def __init__(self, writers: Sequence[Writer]) -> None:
        self.writers = writers
        self._events = [Outbox(one.collection_id, _take_by(one)) for one in writers]
        self._others: dict[str, Outbox] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether something is still to be told."""
        return any(outbox.is_waiting for outbox in self._outboxes)

    def record(self, who: Who, items: Sequence[Item]) -> None:
        """Tell the texts of one turn, in order; blank ones are left out."""
        pieces = prepare(items)
        size = sum(len(text.encode()) for _, text in pieces)
        for outbox in self._events if pieces else ():
            outbox.put(Waiting((who, pieces, datetime.now(UTC)), size))

    def put(self, name: str, attempt: Callable[[], Awaitable[object]], size: int) -> None:
        """Do something else for one turn, after what waits under that name: until it succeeds."""
        idle = [one for one, outbox in self._others.items() if not outbox.is_waiting]
        for one in idle:  # so that they do not become ever more
            del self._others[one]
        outbox = self._others.setdefault(name, Outbox(name, lambda it: Work(it.popleft().what)))
        outbox.put(Waiting(attempt, size))

    async def close(self, seconds: float) -> None:
        """Tell what waits within this time; what cannot be told is lost, and the log says so."""
        await asyncio.gather(*[outbox.close(seconds) for outbox in self._outboxes])

    @property
    def _outboxes(self) -> list[Outbox]:
        return [*self._events, *self._others.values()]


def prepare(items: Sequence[Item]) -> list[Item]:
    """The texts of one turn as the service takes them: adjacent ones joined, long ones split."""
    said = [(role, well_formed(text)) for role, text in items if not is_blank(text)]
    return [
        (role, piece)
        for role, same in groupby(said, key=lambda item: item[0])
        for piece in _split("\n\n".join(text for _, text in same))
        if not is_blank(piece)
    ]


def _split(text: str) -> list[str]:
    """The text in pieces of as many UTF-16 units as a text may have, between characters."""
    units = text.encode("utf-16-le")
    pieces, start = [], 0
    while start < len(units):
        end = start + 2 * LONGEST_TEXT
        if end < len(units) and 0xDC <= units[end + 1] <= 0xDF:
            end -= 2  # not inside a surrogate pair
        pieces.append(units[start:end].decode("utf-16-le"))
        start = end
    return pieces


def _take_by(writer: Writer) -> Callable[[deque[Waiting]], Work]:
    """What makes one event of the first turn that waits, and of more of the same session."""

    def take(waiting: deque[Waiting]) -> Work:
        who, items, at = waiting.popleft().what
        turns = 1
        for other in [one for one in waiting if one.what[0] == who]:
            more = other.what[1]
            if len(items) + len(more) > writer.batch_size:
                break
            items, turns = [*items, *more], turns + 1
            waiting.remove(other)
        # A turn of more texts than one event takes is told in several.
        starts = range(0, len(items), MOST_ITEMS)
        parts = [items[start : start + MOST_ITEMS] for start in starts]
        events = deque(Event(who, part, str(uuid4()), at, writer.project) for part in parts)

        async def attempt() -> None:
            while events:
                await writer.memory.create_event(events[0])
                events.popleft()

        return Work(attempt, turns)

    return take
