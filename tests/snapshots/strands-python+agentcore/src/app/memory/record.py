"""Recording: sends committed turns to long-term memory as events, in the background."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from uuid import uuid4

from ..collections.memory_backend import metadata_problem
from ..contract import is_blank, well_formed
from ..log import describe
from .base import Event, MemoryCollection, Utterance
from .metadata import metadata_of
from .namespaces import Who
from .retry_queue import RetryQueue, Waiting, Work

log = logging.getLogger(__name__)
MAX_TEXT_CHARS = 100_000  # UTF-16 units, as the service counts
MAX_UTTERANCES = 100  # of one event

Said = tuple[list[Utterance], datetime]  # the texts of a turn, and its start
# Whether `forget` erased an actor after a turn began; only a session store has the answer.
IsForgotten = Callable[[str, datetime], Awaitable[bool]]


class Recorder:
    """Sends committed turns to all writers. Never raises, and delays no turn."""

    def __init__(
        self, writers: Sequence[MemoryCollection], is_forgotten: IsForgotten | None = None
    ) -> None:
        self._events = {
            writer.id: RetryQueue(writer.id, partial(self._next_event, writer))
            for writer in writers
        }
        self._others: dict[str, RetryQueue] = {}
        self._is_forgotten = is_forgotten

    @property
    def is_waiting(self) -> bool:
        """Whether some turns are still to be sent."""
        return any(queue.is_waiting for queue in self._queues)

    def record(self, who: Who, utterances: Sequence[Utterance], began: datetime) -> None:
        """Send the texts of a turn, in order, without blank texts; `began` is its start."""
        texts = split_utterances([_with_metadata(who, utterance) for utterance in utterances])
        for name, queue in self._events.items():
            own = [text for text in texts if text.stores is None or name in text.stores]
            if own:
                size = sum(len(text.text.encode()) for text in own)
                queue.put(Waiting((who, own, began), size))

    def put(self, name: str, attempt: Callable[[], Awaitable[object]], size: int) -> None:
        """Repeat other work of a turn until it succeeds; work of the same name is in order."""
        self._others = {name: queue for name, queue in self._others.items() if queue.is_waiting}
        queue = self._others.setdefault(
            name, RetryQueue(name, lambda waiting: Work(waiting.popleft().what))
        )
        queue.put(Waiting(attempt, size))

    async def close(self, seconds: float) -> None:
        """Send waiting turns within `seconds`; the rest is lost, with an error in the log."""
        await asyncio.gather(*[queue.close(seconds) for queue in self._queues])

    @property
    def _queues(self) -> list[RetryQueue]:
        return [*self._events.values(), *self._others.values()]

    def _next_event(self, writer: MemoryCollection, waiting: deque[Waiting]) -> Work:
        """Make an event of the first waiting turn and of further turns of its session."""
        who, texts, began = waiting.popleft().what
        turns, count = [(texts, began)], len(texts)
        for other in [item for item in waiting if item.what[0] == who]:
            _, more, began = other.what
            if count + len(more) > writer.batch_size:
                break
            turns.append((more, began))
            count += len(more)
            waiting.remove(other)
        events: deque[Event] | None = None

        async def attempt() -> None:
            nonlocal turns, events
            while events is None or events:
                left = await self._not_forgotten(who.actor, turns)
                if events is None or len(left) < len(turns):
                    turns, events = left, _events(who, left, writer)
                if events:
                    await writer.traced.create_event(events[0])
                    events.popleft()

        return Work(attempt, len(turns))

    async def _not_forgotten(self, actor: str, turns: list[Said]) -> list[Said]:
        """Return the turns that began after `forget` erased the actor, if it did."""
        if self._is_forgotten and turns and await self._is_forgotten(actor, turns[0][1]):
            return await self._not_forgotten(actor, turns[1:])
        return turns


def _events(who: Who, turns: list[Said], writer: MemoryCollection) -> deque[Event]:
    """Return the texts of turns as events.

    More texts than an event allows become several events, and so do texts of other metadata.
    """
    texts = [text for texts, _ in turns for text in texts]
    parts = [
        same[start : start + MAX_UTTERANCES]
        for same in ([*group] for _, group in groupby(texts, key=lambda text: text.metadata))
        for start in range(0, len(same), MAX_UTTERANCES)
    ]
    return deque(Event(who, part, str(uuid4()), turns[0][1], writer.project_id) for part in parts)


def split_utterances(utterances: Sequence[Utterance]) -> list[Utterance]:
    """Return texts as the service accepts them: adjacent ones joined, long ones split."""
    texts = [
        utterance._replace(text=well_formed(utterance.text))
        for utterance in utterances
        if not is_blank(utterance.text)
    ]
    groups = ([*same] for _, same in groupby(texts, key=lambda text: text._replace(text="")))
    return [
        same[0]._replace(text=piece)
        for same in groups
        for piece in _split("\n\n".join(text.text for text in same))
        if not is_blank(piece)
    ]


def _with_metadata(who: Who, utterance: Utterance) -> Utterance:
    try:
        metadata = {**metadata_of(who, utterance), **utterance.metadata}
        why = metadata_problem(metadata)
    except Exception as error:  # noqa: BLE001 (of the owner; the text is recorded all the same)
        metadata, why = {}, describe(error)
    if not why:
        return utterance._replace(metadata=metadata)
    log.warning("a text is recorded without its metadata: memory/metadata: %s", why)
    return utterance


def _split(text: str) -> list[str]:
    units = text.encode("utf-16-le")
    pieces, start = [], 0
    while start < len(units):
        end = start + 2 * MAX_TEXT_CHARS
        if end < len(units) and 0xDC <= units[end + 1] <= 0xDF:
            end -= 2  # not inside a surrogate pair
        pieces.append(units[start:end].decode("utf-16-le"))
        start = end
    return pieces
