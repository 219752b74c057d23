"""Recording: sends committed turns to long-term memory as events, in the background."""

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
from ..log import describe
from .base import (
    Event,
    MemoryCollection,
    MemoryRefused,
    MemoryUnavailable,
    Turns,
    Utterance,
    describe_failure,
)
from .namespaces import Who
from .policy import MemoryPolicy
from .retry_queue import MAX_BYTES, MAX_TURNS, RetryQueue, Waiting, Work

log = logging.getLogger(__name__)
MAX_TEXT_CHARS = 100_000  # UTF-16 units, as the service counts
MAX_UTTERANCES = 100  # of one event
MAX_CALLS = 3  # of a model for the facts of a turn; it may bill each, also if it fails

Said = tuple[list[Utterance], datetime]  # the texts of a turn, and its start
# Whether `forget` erased an actor after a turn began; only a session store has the answer.
IsForgotten = Callable[[str, datetime], Awaitable[bool]]
# Returns the facts that a model finds in the texts of an actor's turns. Raises MemoryRefused if a
# repetition would fail, too, and MemoryUnavailable: a transient one if the model was not billed.
Extract = Callable[[str, Turns], Awaitable[list[Utterance]]]


class Recorder:
    """Sends committed turns to all writers. Never raises, and delays no turn."""

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
        self._is_forgotten, self._extract = is_forgotten, extract
        self._held: dict[tuple[str, Who], list[Waiting]] = {}  # until a trigger
        self._timers: dict[tuple[str, Who], asyncio.TimerHandle] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether some turns are still to be sent."""
        return bool(self._held) or any(queue.is_waiting for queue in self._queues)

    @property
    def waiting(self) -> dict[str, int]:
        """How many turns are still to be sent, by the collection or store; from any thread."""
        turns = {queue.name: queue.turns for queue in self._queues}
        for (name, _), held in [*self._held.items()]:
            turns[name] += len(held)
        return turns

    def record(self, who: Who, utterances: Sequence[Utterance], began: datetime) -> None:
        """Send the texts of a turn, in order, without blank texts; `began` is its start."""
        texts = to_record(self._policy, who, utterances)
        for name in self._events:
            own = [text for text in texts if text.is_for(name)]
            if own:
                size = sum(len(text.text.encode()) for text in own)
                self._hold(name, who, Waiting((who, own, began), size))

    def flush(self, session_id: str) -> None:
        """Send the turns of a session that wait for more turns."""
        for name, who in [*self._held]:
            if who.session_id == session_id:
                self._release(name, who)

    def put(self, name: str, who: Who, attempt: Callable[[], Awaitable[object]], size: int) -> None:
        """Repeat other work of a turn until it succeeds, in the order of the session."""
        self._others = {name: queue for name, queue in self._others.items() if queue.is_waiting}
        queue = self._others.setdefault(
            name, RetryQueue(name, lambda waiting: Work(waiting.popleft().what))
        )
        queue.put(who, Waiting(attempt, size))

    async def close(self, seconds: float) -> None:
        """Send waiting turns within `seconds`; the rest is lost, with an error in the log."""
        self._release_all()
        await asyncio.gather(*[queue.close(seconds) for queue in self._queues])

    @property
    def _queues(self) -> list[RetryQueue]:
        return [*self._events.values(), *self._others.values()]

    def _hold(self, name: str, who: Who, item: Waiting) -> None:
        held = self._held.setdefault((name, who), [])
        held.append(item)
        if self._is_due(name, who, [waiting.what[1] for waiting in held]):
            self._release(name, who)
        elif (name, who) not in self._timers:
            # In a context of its own: that of the turn would keep its session in memory.
            later, loop = partial(self._release, name, who), asyncio.get_running_loop()
            timer = loop.call_later(self._policy.max_wait_seconds, later, context=Context())
            self._timers[name, who] = timer
        items = [waiting for held in self._held.values() for waiting in held]
        if len(items) > MAX_TURNS or sum(waiting.size for waiting in items) > MAX_BYTES:
            self._release_all()

    def _is_due(self, name: str, who: Who, turns: Turns) -> bool:
        try:
            return bool(self._policy.is_due(name, who, turns))
        except Exception as error:  # noqa: BLE001 (of the owner; nothing is lost)
            log.warning("turns are recorded now: own_memory failed: %s", describe(error))
            return True

    def _release(self, name: str, who: Who) -> None:
        """Send what was held, as one event if it fits."""
        if timer := self._timers.pop((name, who), None):
            timer.cancel()
        held = self._held.pop((name, who), [])
        for waiting in held:
            waiting.group = held
            self._events[name].put(who, waiting)

    def _release_all(self) -> None:
        for name, who in [*self._held]:
            self._release(name, who)

    def _next_event(self, writer: MemoryCollection, waiting: deque[Waiting]) -> Work:
        """Make an event of the first turns that wait in a session."""
        first = waiting.popleft()
        who, texts, began = first.what
        turns, count = [(texts, began)], len(texts)
        for other in [*waiting]:
            _, more, began = other.what
            if other.group is not first.group and count + len(more) > writer.batch_size:
                break
            turns.append((more, began))
            count += len(more)
            waiting.remove(other)
        events: deque[Event] | None = None
        facts_of = self._extracting(writer, who.actor)

        async def attempt() -> None:
            nonlocal turns, events
            while events is None or events:
                left = await self._not_forgotten(who.actor, turns)
                if events is None or len(left) < len(turns):
                    found = await facts_of([texts for texts, _ in left])
                    turns, events = left, deque()
                    if left:
                        events.extend(events_of(who, found, [began for _, began in left], writer))
                    if writer.extracts:
                        continue  # `forget` may have run while the model answered
                if events:
                    await writer.traced.create_event(events[0])
                    events.popleft()

        return Work(attempt, len(turns))

    def _extracting(
        self, writer: MemoryCollection, actor: str
    ) -> Callable[[Turns], Awaitable[list[Utterance]]]:
        """Return what makes the texts to send of those of turns.

        A model that is late is awaited, and not asked again.
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
                why = describe_failure(error)
            log.error("%s: turns not recorded: %d (%s)", writer.id, len(turns), why)
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

    async def _not_forgotten(self, actor: str, turns: list[Said]) -> list[Said]:
        """Return the turns that began after `forget` erased the actor, if it did."""
        if self._is_forgotten and turns and await self._is_forgotten(actor, turns[0][1]):
            return await self._not_forgotten(actor, turns[1:])
        return turns


def to_record(policy: MemoryPolicy, who: Who, utterances: Sequence[Utterance]) -> list[Utterance]:
    """Return the texts that are recorded, as the service accepts them, with their metadata."""
    wanted = [utterance for utterance in utterances if _is_recorded(policy, who, utterance)]
    return split_utterances([_with_metadata(policy, who, utterance) for utterance in wanted])


def events_of(
    who: Who, texts: list[Utterance], began: Sequence[datetime], writer: MemoryCollection
) -> list[Event]:
    """Return texts of turns as events; `began` has the starts of the turns.

    More texts than an event allows become several events, and so do texts of other metadata.
    """
    parts = [
        same[start : start + MAX_UTTERANCES]
        for same in ([*group] for _, group in groupby(texts, key=lambda text: text.metadata))
        for start in range(0, len(same), MAX_UTTERANCES)
    ]
    return [Event(who, part, str(uuid4()), began, writer.project_id) for part in parts]


def _is_recorded(policy: MemoryPolicy, who: Who, utterance: Utterance) -> bool:
    try:
        return policy.is_recorded(who, utterance)
    except Exception as error:  # noqa: BLE001
        log.warning("a text is not recorded: own_memory failed: %s", describe(error))
        return False


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


def _with_metadata(policy: MemoryPolicy, who: Who, utterance: Utterance) -> Utterance:
    try:
        metadata = {**policy.metadata_of(who, utterance), **utterance.metadata}
        why = metadata_problem(metadata)
    except Exception as error:  # noqa: BLE001 (of the owner; the text is recorded all the same)
        metadata, why = {}, describe(error)
    if not why:
        return utterance._replace(metadata=metadata)
    log.warning("a text is recorded without its metadata: own_memory: %s", why)
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
