"""A queue of background work: ordered within a session, with retries and limits."""

import asyncio
import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from tenacity.stop import StopBaseT, stop_after_attempt
from tenacity.wait import wait_random_exponential

from .base import MemoryRefused, MemoryUnavailable, locate_failure
from .namespaces import Who

log = logging.getLogger(__name__)
MAX_TURNS = 1000  # waiting turns per actor
MAX_BYTES = 16_777_216  # waiting bytes per actor
MAX_LOAD = 4  # total backlog, in multiples of an actor's
JOBS = 16  # concurrent jobs in total
SHARE = 8  # concurrent jobs per actor, and for all failed lanes together
BACKLOG = 50  # warn at this number of waiting turns, and again at each doubling
FIRST_PAUSE = 0.5  # seconds between the first attempts
MAX_PAUSE = 30  # seconds between later attempts
MAX_ATTEMPT = 30  # seconds for an attempt
MAX_WORK = 600  # seconds for all attempts of a job
CLOSING_PAUSE = 0.2  # seconds between attempts while the process ends
CLOSING_ATTEMPT = 2  # seconds for an attempt while the process ends
THREE_ATTEMPTS = stop_after_attempt(3)
NUMBERS = count()


def is_transient(error: BaseException) -> bool:
    """Whether a retry may succeed soon."""
    return isinstance(error, MemoryUnavailable) and error.transient


async def with_retries(
    work: Callable[[], Awaitable[Any]],
    is_retried: Callable[[BaseException], bool] = is_transient,
    stop: StopBaseT = THREE_ATTEMPTS,
    **options: Any,
) -> Any:
    """Return the result of `work`, with retries. Raises the last error."""
    wait = wait_random_exponential(FIRST_PAUSE, MAX_PAUSE, min=FIRST_PAUSE)
    retry = retry_if_exception(is_retried)
    retrying = AsyncRetrying(stop=stop, wait=wait, retry=retry, reraise=True, **options)
    return await retrying(work)


@dataclass
class QueueItem:
    """An item of background work; `size` is in bytes. Items of a group belong together."""

    payload: Any
    size: int
    group: object = None
    number: int = field(default_factory=partial(next, NUMBERS))  # older items have lower numbers


@dataclass
class Work:
    """A job for `turns` turns, attempted as a whole; the queue sets `size`."""

    attempt: Callable[[], Awaitable[object]]
    turns: int = 1
    size: int = 0


@dataclass(eq=False)
class Lane:
    """The work of one session, which runs in order."""

    actor: str
    waiting: deque[QueueItem] = field(default_factory=deque)
    work: Work | None = None  # the current job
    started_at: float = 0  # when its first attempt started
    reason: str = ""  # the reason for its last failure
    has_failed: bool = False
    patience: float = CLOSING_ATTEMPT  # time limit of an attempt while the process ends
    task: asyncio.Task[None] | None = None

    @property
    def turns(self) -> int:
        """The number of waiting turns and turns of the job."""
        return len(self.waiting) + (self.work.turns if self.work else 0)

    @property
    def size(self) -> int:
        """The size of these turns in bytes."""
        return sum(item.size for item in self.waiting) + (self.work.size if self.work else 0)


class Slots:
    """Admits attempts, first come, first served.

    Each actor gets at most half of the slots. All failed lanes together also get at most half, so
    that a failure does not delay other actors.
    """

    def __init__(self) -> None:
        self._queue: deque[tuple[Lane, asyncio.Future[None]]] = deque()
        self._running: list[Lane] = []

    @asynccontextmanager
    async def of(self, lane: Lane) -> AsyncIterator[None]:
        """Wait for a slot, and release it at the end."""
        entry = lane, asyncio.get_running_loop().create_future()
        self._queue.append(entry)
        self._admit()
        try:
            await entry[1]
            yield
        finally:
            if entry in self._queue:
                self._queue.remove(entry)
            else:
                self._running.remove(lane)
            self._admit()

    def _admit(self) -> None:
        for entry in [*self._queue]:
            lane, ready = entry
            if not ready.done() and self._has_slot(lane):
                self._queue.remove(entry)
                self._running.append(lane)
                ready.set_result(None)

    def _has_slot(self, lane: Lane) -> bool:
        if len(self._running) >= JOBS:
            return False
        if sum(other.actor == lane.actor for other in self._running) >= SHARE:
            return False
        return not lane.has_failed or sum(other.has_failed for other in self._running) < SHARE


class RetryQueue:
    """Runs jobs in the background: in order within a session, several sessions at once.

    Callers neither wait nor receive errors.
    """

    def __init__(self, name: str, take: Callable[[deque[QueueItem]], Work]) -> None:
        """Create a queue; `take` removes waiting items of a session and turns them into a job."""
        self.name = name
        self._take = take
        self._lanes: dict[Who, Lane] = {}
        self._slots = Slots()
        self._reported = BACKLOG // 2
        self._closing = asyncio.Event()
        self._is_closed = False

    @property
    def turns(self) -> int:
        """The number of unfinished turns. Thread-safe."""
        return sum(lane.turns for lane in [*self._lanes.values()])

    @property
    def is_waiting(self) -> bool:
        """Whether any work is unfinished."""
        return bool(self._lanes)

    def put(self, identity: Who, item: QueueItem) -> None:
        """Add an item to the lane of a session, and start the lane."""
        if self._is_closed:
            return self._report_lost(1, "the process ends")
        if identity not in self._lanes:
            lane = self._lanes[identity] = Lane(identity.actor)
            # An empty context: the turn's context would keep its session in memory.
            work = self._run(identity, lane)
            loop = asyncio.get_running_loop()
            lane.task = loop.create_task(work, context=Context())
        self._lanes[identity].waiting.append(item)
        self._report_lost(self._drop(identity.actor), "the queue is full")
        if self.turns >= 2 * self._reported:
            self._reported = self.turns
            log.warning("%s: %d turns are waiting to be recorded", self.name, self.turns)

    async def close(self, seconds: float) -> None:
        """Finish within `seconds`, without long pauses; the log reports lost turns."""
        self._closing.set()
        end = time.monotonic() + seconds
        while (tasks := self._tasks) and (remaining := end - time.monotonic()) > 0:
            await asyncio.wait(tasks, timeout=remaining)
        self._is_closed = True
        lanes = [*self._lanes.values()]
        tasks = self._tasks
        self._lanes.clear()
        lost = Counter[str]()
        for lane in lanes:
            lost[lane.reason or "the process ends"] += lane.turns
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for reason, turns in lost.items():
            self._report_lost(turns, reason)

    @property
    def _tasks(self) -> list[asyncio.Task[None]]:
        return [lane.task for lane in self._lanes.values() if lane.task]

    async def _run(self, identity: Who, lane: Lane) -> None:
        while lane.waiting:
            lane.work = None
            lane.started_at = time.monotonic()
            lane.reason = ""
            try:
                await with_retries(
                    partial(self._attempt, lane),
                    lambda exc: isinstance(exc, Exception) and not isinstance(exc, MemoryRefused),
                    lambda _: time.monotonic() - lane.started_at > MAX_WORK,
                    before_sleep=partial(self._note_failure, lane),
                    sleep=self._pause,
                )
                lane.has_failed = False
            except Exception as error:  # noqa: BLE001 (an owner's store may raise any error)
                self._report_lost(lane.work.turns if lane.work else 0, locate_failure(error))
            lane.work = None
        self._lanes.pop(identity, None)  # `close` may have removed it
        if self.turns < BACKLOG // 2:
            self._reported = BACKLOG // 2

    async def _attempt(self, lane: Lane) -> object:
        async with self._slots.of(lane):
            if lane.work is None:
                if not lane.waiting:
                    return None  # all items were dropped
                size = lane.size
                lane.work = self._take(lane.waiting)
                lane.started_at = time.monotonic()
                lane.work.size = size - lane.size
            return await self._try(lane, lane.work)

    async def _try(self, lane: Lane, work: Work) -> object:
        attempt = asyncio.ensure_future(work.attempt())
        passed = 0
        try:
            # Count one-second ticks: `chat` stops the event loop between turns.
            while passed < (lane.patience if self._closing.is_set() else MAX_ATTEMPT):
                if (await asyncio.wait({attempt}, timeout=1))[0] and not attempt.cancelled():
                    return attempt.result()
                passed += 1
        finally:
            attempt.cancel()
        if self._closing.is_set():
            lane.patience *= 2  # the service may be slow, not down
        raise MemoryUnavailable("no answer in time")

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()
            await asyncio.sleep(CLOSING_PAUSE)

    def _note_failure(self, lane: Lane, state: RetryCallState) -> None:
        lane.has_failed = True
        if state.outcome and (error := state.outcome.exception()):
            lane.reason = locate_failure(error)

    def _drop(self, actor: str) -> int:
        """Drop the oldest items beyond the limits; return the number of dropped items.

        Beyond the total limit, drop items of the actor with the largest backlog.
        """
        lanes = defaultdict[str, list[Lane]](list)
        dropped = 0
        for lane in self._lanes.values():
            lanes[lane.actor].append(lane)
        while _load(lanes[actor]) > 1 and _drop_oldest(lanes[actor]):
            dropped += 1
        while _load(self._lanes.values()) > MAX_LOAD:
            if not _drop_oldest(max(lanes.values(), key=_load)):
                break
            dropped += 1
        return dropped

    def _report_lost(self, turns: int, reason: str) -> None:
        if turns:
            log.error("%s: turns not recorded: %d (%s)", self.name, turns, reason)


def _load(lanes: Iterable[Lane]) -> float:
    """Return the backlog of lanes, relative to an actor's limit."""
    work = [(lane.turns, lane.size) for lane in lanes]
    turns = sum(turns for turns, _ in work)
    size = sum(size for _, size in work)
    return max(turns / MAX_TURNS, size / MAX_BYTES)


def _drop_oldest(lanes: Iterable[Lane]) -> bool:
    """Drop the oldest waiting item; return whether an item was dropped."""
    waiting = [lane.waiting for lane in lanes if lane.waiting]
    if waiting:
        min(waiting, key=lambda items: items[0].number).popleft()
    return bool(waiting)
