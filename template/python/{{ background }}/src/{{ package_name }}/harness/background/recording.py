"""The recorded events of a turn, for any number of readers."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

from ..contract import AgentError
from .failures import Format

HELD_BYTES = 2**23  # above the maximum, for readers that are slow: an image takes them time
LOST_NUMBER = 10**15 - 1  # of `turn_lost`: the killed process may have sent unsaved events


class Recording:
    """The events of a turn, in order and numbered from 1.

    Above `max_bytes`, the next event drops the oldest ones, but those that a reader or another
    replica may still need only above HELD_BYTES more. Readers read by position, so they delay
    neither the turn nor each other.
    """

    def __init__(self, turn_id: str, format: Format, max_bytes: int) -> None:
        self.turn_id = turn_id
        self.format: Format = format
        self.first = 1  # the number of the oldest event that is not dropped
        self.size = 0  # bytes
        self.delivered = inf  # other replicas have had time to read the events up to this number
        self.is_ended = False
        self.is_closed = False  # readers must reconnect
        self.lost: bytes | None = None  # the last event, if the process that runs the turn ended
        self.readers = dict[asyncio.Task[None], Callable[[], int]]()  # with their positions
        self._max_bytes = max_bytes
        self._events = deque[bytes]()
        self._news = asyncio.Event()

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self.first + len(self._events) - 1

    @property
    def final(self) -> int:
        """The number of the last event of an ended turn, also if its process has ended."""
        return LOST_NUMBER if self.lost else self.last

    def append(self, *events: bytes) -> None:
        """Add events, each with its lines and the empty line at their end."""
        read = min([self.delivered, *(position() for position in self.readers.values())])
        while self.size > self._max_bytes + (0 if self.first <= read else HELD_BYTES):
            self.size -= len(self._events.popleft())
            self.first += 1
        self._events.extend(events)
        self.size += sum(map(len, events))
        self._notify()

    def skip_to(self, number: int) -> None:
        """Drop all events; the next event has this number."""
        self._events.clear()
        self.size = 0
        self.first = number

    def end(self) -> None:
        """Mark the end: no more events follow."""
        self.is_ended = True
        self._notify()

    def lose(self, event: bytes) -> None:
        """Mark the end of a turn whose process has ended; readers get `event` after all others."""
        self.lost = event
        self.end()

    def close(self) -> None:
        """Disconnect the readers, so that they reconnect to another replica."""
        self.is_closed = True
        self._notify()

    def read(self, position: int, max_bytes: int) -> list[bytes]:
        """Return the events after `position`: at least one if there is one, in about `max_bytes`.

        Raises AgentError `events_lost` if the next event was dropped.
        """
        if position + 1 < self.first:
            raise AgentError("events_lost")
        events = list[bytes]()
        size = 0
        for index in range(position + 1 - self.first, len(self._events)):
            events.append(self._events[index])
            size += len(events[-1])
            if size >= max_bytes:
                break
        return events

    async def wait(self, seconds: float) -> bool:
        """Wait for the next event or the end; return False after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                return await self._news.wait()
        except TimeoutError:
            return False

    @contextmanager
    def reading(self, position: Callable[[], int]) -> Iterator[None]:
        """Count the current task as a reader that has the events up to `position()`.

        `expire` ends the block without an error.
        """
        task = asyncio.current_task()
        assert task
        self.readers[task] = position
        try:
            yield
        except asyncio.CancelledError:
            if task in self.readers:
                raise
            task.uncancel()
        finally:
            self.readers.pop(task, None)

    def expire(self) -> None:
        """Disconnect the readers, even if they do not receive."""
        readers = self.readers
        self.readers = {}
        for reader in readers:
            reader.cancel()

    def _notify(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
