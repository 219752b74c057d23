"""Record committed turns: send them to long-term memory as events, in the background."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from datetime import datetime
from functools import partial
from itertools import groupby
from uuid import uuid4

from ..collections.memory_backend import metadata_problem
from ..contract import is_blank, well_formed
from .base import (
    Event,
    MemoryCollection,
    MemoryRefused,
    MemoryUnavailable,
    Turns,
    Utterance,
    describe_failure,
    locate_failure,
)
from .namespaces import Who
from .policy import MemoryPolicy
from .retry_queue import MAX_BYTES, MAX_TURNS, QueueItem, RetryQueue, Work

log = logging.getLogger(__name__)
MAX_TEXT_CHARS = 100_000  # UTF-16 units, as in AgentCore
MAX_UTTERANCES = 100  # per event
MAX_CALLS = 3  # model calls per extraction: failed calls may be billed too

RecordedTurn = tuple[list[Utterance], datetime]  # the texts and the start time
# Whether `forget` erased an actor after a turn began. Needs a session store.
IsForgotten = Callable[[str, datetime], Awaitable[bool]]
# Extracts facts from the texts of an actor's turns. Raises MemoryRefused if a retry would fail too,
# else MemoryUnavailable, which is transient if the model was not billed.
Extract = Callable[[str, Turns], Awaitable[list[Utterance]]]


class Recorder:
    """Sends committed turns to all writers. Never raises or delays a turn."""

    def __init__(
        self,
        writers: Sequence[MemoryCollection],
        policy: MemoryPolicy,
        is_forgotten: IsForgotten | None = None,
        extract: Extract | None = None,
    ) -> None:
        self._policy = policy
        self._events = {
            writer.id: RetryQueue(writer.id, partial(self._next_event, writer))
            for writer in writers
        }
        self._others: dict[str, RetryQueue] = {}
        self._is_forgotten = is_forgotten
        self._extract = extract
        self._batches: dict[tuple[str, Who], list[QueueItem]] = {}  # turns to record together
        self._timers: dict[tuple[str, Who], asyncio.TimerHandle] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether some turns have not been sent."""
        return bool(self._batches) or any(queue.is_waiting for queue in self._queues)

    @property
    def waiting(self) -> dict[str, int]:
        """The number of unsent turns by collection or store. Thread-safe."""
        turns = {queue.name: queue.turns for queue in self._queues}
        for (name, _), batch in [*self._batches.items()]:
            turns[name] += len(batch)
        return turns

    def record(self, identity: Who, utterances: Sequence[Utterance], started_at: datetime) -> None:
        """Send the texts of a turn, in order, without blank texts."""
        texts = to_record(self._policy, identity, utterances)
        for name in self._events:
            selected = [text for text in texts if text.is_for(name)]
            if selected:
                size = sum(len(text.text.encode()) for text in selected)
                item = QueueItem((identity, selected, started_at), size)
                self._add_to_batch(name, identity, item)

    def flush(self, session_id: str) -> None:
        """Send the session's batched turns now."""
        for name, identity in [*self._batches]:
            if identity.session_id == session_id:
                self._send_batch(name, identity)

    def put(
        self, name: str, identity: Who, attempt: Callable[[], Awaitable[object]], size: int
    ) -> None:
        """Retry other work of a turn until it succeeds, in the order of the session."""
        self._others = {name: queue for name, queue in self._others.items() if queue.is_waiting}
        queue = self._others.setdefault(
            name, RetryQueue(name, lambda waiting: Work(waiting.popleft().payload))
        )
        queue.put(identity, QueueItem(attempt, size))

    async def is_forgotten(self, actor: str, started_at: datetime) -> bool:
        """Whether `forget` erased an actor after a turn began; False without a session store."""
        return self._is_forgotten is not None and await self._is_forgotten(actor, started_at)

    async def close(self, seconds: float) -> None:
        """Send waiting turns within `seconds`; the log reports lost turns."""
        self._send_batches()
        await asyncio.gather(*[queue.close(seconds) for queue in self._queues])

    @property
    def _queues(self) -> list[RetryQueue]:
        return [*self._events.values(), *self._others.values()]

    def _add_to_batch(self, name: str, identity: Who, item: QueueItem) -> None:
        batch = self._batches.setdefault((name, identity), [])
        batch.append(item)
        if self._is_due(name, identity, [waiting.payload[1] for waiting in batch]):
            self._send_batch(name, identity)
        elif (name, identity) not in self._timers:
            # An empty context: the turn's context would keep its session in memory.
            send = partial(self._send_batch, name, identity)
            loop = asyncio.get_running_loop()
            timer = loop.call_later(self._policy.max_wait_seconds, send, context=Context())
            self._timers[name, identity] = timer
        items = [waiting for batch in self._batches.values() for waiting in batch]
        if len(items) > MAX_TURNS or sum(waiting.size for waiting in items) > MAX_BYTES:
            self._send_batches()

    def _is_due(self, name: str, identity: Who, turns: Turns) -> bool:
        try:
            return bool(self._policy.is_due(name, identity, turns))
        except Exception as error:  # noqa: BLE001 (owner's code; no turn is lost)
            log.warning("recording turns now: own_memory failed: %s", locate_failure(error))
            return True

    def _send_batch(self, name: str, identity: Who) -> None:
        """Send the turns of a batch, as one event if they fit."""
        if timer := self._timers.pop((name, identity), None):
            timer.cancel()
        batch = self._batches.pop((name, identity), [])
        for waiting in batch:
            waiting.group = batch
            self._events[name].put(identity, waiting)

    def _send_batches(self) -> None:
        for name, identity in [*self._batches]:
            self._send_batch(name, identity)

    def _next_event(self, writer: MemoryCollection, waiting: deque[QueueItem]) -> Work:
        """Turn the first waiting turns of a session into a job."""
        first = waiting.popleft()
        identity, texts, started_at = first.payload
        turns = [(texts, started_at)]
        count = len(texts)
        for other in [*waiting]:
            _, more, started_at = other.payload
            if other.group is not first.group and count + len(more) > writer.batch_size:
                break
            turns.append((more, started_at))
            count += len(more)
            waiting.remove(other)
        events: deque[Event] | None = None
        texts_of = self._extractor(writer, identity.actor)

        async def attempt() -> None:
            nonlocal turns, events
            while events is None or events:
                remaining = await self._not_forgotten(identity.actor, turns)
                if events is None or len(remaining) < len(turns):
                    texts = await texts_of([texts for texts, _ in remaining])
                    turns = remaining
                    events = deque()
                    if remaining:
                        start_times = [started_at for _, started_at in remaining]
                        events.extend(events_of(identity, texts, start_times, writer))
                    if writer.extracts:
                        continue  # `forget` may have run while the model answered
                if events:
                    await writer.traced.create_event(events[0])
                    events.popleft()

        return Work(attempt, len(turns))

    def _extractor(
        self, writer: MemoryCollection, actor: str
    ) -> Callable[[Turns], Awaitable[list[Utterance]]]:
        """Return a function that maps turns to the texts to send: extracted facts, if declared.

        A retry awaits a late extraction instead of starting another.
        """
        tasks: dict[int, asyncio.Task[list[Utterance]]] = {}
        calls = 0

        async def find(extract: Extract, turns: Turns) -> list[Utterance]:
            nonlocal calls
            try:
                return await extract(actor, turns)
            except Exception as error:
                calls += not (isinstance(error, MemoryUnavailable) and error.transient)
                if calls < MAX_CALLS and not isinstance(error, MemoryRefused):
                    raise
                reason = describe_failure(error)
            log.error("%s: turns not recorded: %d (%s)", writer.id, len(turns), reason)
            return [text for texts in turns for text in texts if text.is_fact]

        async def texts_of(turns: Turns) -> list[Utterance]:
            if self._extract is None or not writer.extracts or not turns:
                return [text for texts in turns for text in texts]
            task = tasks.get(len(turns))
            if task is None or (task.done() and task.exception()):
                task = asyncio.create_task(find(self._extract, turns))
                tasks[len(turns)] = task
            return await asyncio.shield(task)

        return texts_of

    async def _not_forgotten(self, actor: str, turns: list[RecordedTurn]) -> list[RecordedTurn]:
        """Return the turns that began after `forget` erased the actor; all without an erasure."""
        if turns and await self.is_forgotten(actor, turns[0][1]):
            return await self._not_forgotten(actor, turns[1:])
        return turns


def to_record(
    policy: MemoryPolicy, identity: Who, utterances: Sequence[Utterance]
) -> list[Utterance]:
    """Return the texts to record, in sizes that the service accepts, with metadata."""
    recorded = [utterance for utterance in utterances if _is_recorded(policy, identity, utterance)]
    return split_utterances([_with_metadata(policy, identity, utterance) for utterance in recorded])


def events_of(
    identity: Who,
    texts: list[Utterance],
    start_times: Sequence[datetime],
    writer: MemoryCollection,
) -> list[Event]:
    """Return the texts of turns as events; `start_times` are the start times of the turns.

    An event contains at most MAX_UTTERANCES texts, all with equal metadata.
    """
    parts = [
        same[start : start + MAX_UTTERANCES]
        for same in ([*group] for _, group in groupby(texts, key=lambda text: text.metadata))
        for start in range(0, len(same), MAX_UTTERANCES)
    ]
    return [Event(identity, part, str(uuid4()), start_times, writer.project_id) for part in parts]


def _is_recorded(policy: MemoryPolicy, identity: Who, utterance: Utterance) -> bool:
    try:
        return policy.is_recorded(identity, utterance)
    except Exception as error:  # noqa: BLE001
        log.warning("text is not recorded: own_memory failed: %s", locate_failure(error))
        return False


def split_utterances(utterances: Sequence[Utterance]) -> list[Utterance]:
    """Join adjacent texts of a speaker, and split texts that are too long for the service."""
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


def _with_metadata(policy: MemoryPolicy, identity: Who, utterance: Utterance) -> Utterance:
    try:
        metadata = {**policy.metadata_of(identity, utterance), **utterance.metadata}
        reason = metadata_problem(metadata)
    except Exception as error:  # noqa: BLE001 (owner's code; the text is still recorded)
        metadata = {}
        reason = locate_failure(error)
    if not reason:
        return utterance._replace(metadata=metadata)
    log.warning("text is recorded without its metadata: own_memory: %s", reason)
    return utterance


def _split(text: str) -> list[str]:
    units = text.encode("utf-16-le")
    pieces = []
    start = 0
    while start < len(units):
        end = start + 2 * MAX_TEXT_CHARS
        if end < len(units) and 0xDC <= units[end + 1] <= 0xDF:
            end -= 2  # not inside a surrogate pair
        pieces.append(units[start:end].decode("utf-16-le"))
        start = end
    return pieces
