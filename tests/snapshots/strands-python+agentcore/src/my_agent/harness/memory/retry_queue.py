"""Background work: in order within a session, retried until it succeeds, and bounded."""

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

from .base import MemoryRefused, MemoryUnavailable, describe_failure
from .namespaces import Who

log = logging.getLogger(__name__)
MAX_TURNS, MAX_BYTES = 1000, 16_777_216  # of an actor that may wait
MAX_LOAD = 4  # backlogs of that size that may wait in all
JOBS, SHARE = 16, 8  # at once in all; at most for an actor, and for the lanes that failed
BACKLOG = 50  # waiting turns that the log reports, and then each doubling
# In seconds: pauses between attempts, an attempt, and all attempts of a job.
FIRST_PAUSE, MAX_PAUSE, MAX_ATTEMPT, MAX_WORK = 0.5, 30, 30, 600
CLOSING_PAUSE, CLOSING_ATTEMPT = 0.2, 2
THREE_TIMES = stop_after_attempt(3)
NUMBERS = count()


def is_transient(error: BaseException) -> bool:
    """Whether a call of the memory may succeed soon."""
    return isinstance(error, MemoryUnavailable) and error.transient


async def with_retries(
    work: Callable[[], Awaitable[Any]],
    is_retried: Callable[[BaseException], bool] = is_transient,
    stop: StopBaseT = THREE_TIMES,
    **options: Any,
) -> Any:
    """Return the result of `work`, after some attempts if needed; raise the last error."""
    wait = wait_random_exponential(FIRST_PAUSE, MAX_PAUSE, min=FIRST_PAUSE)
    retry = retry_if_exception(is_retried)
    retrying = AsyncRetrying(stop=stop, wait=wait, retry=retry, reraise=True, **options)
    return await retrying(work)


@dataclass
class Waiting:
    """An item of background work; `size` is in bytes. Those of a group belong together."""

    what: Any
    size: int
    group: object = None
    number: int = field(default_factory=partial(next, NUMBERS))  # lower ones are older


@dataclass
class Work:
    """A job that is attempted as a whole, for `turns` turns; `size` is set by its queue."""

    attempt: Callable[[], Awaitable[object]]
    turns: int = 1
    size: int = 0


@dataclass(eq=False)
class Lane:
    """The work of one session, which runs in order."""

    actor: str
    waiting: deque[Waiting] = field(default_factory=deque)
    work: Work | None = None  # the job that is attempted
    began: float = 0  # its first attempt
    why: str = ""  # of its last failure
    has_failed: bool = False
    patience: float = CLOSING_ATTEMPT  # for an attempt while the process ends
    task: asyncio.Task[None] | None = None

    @property
    def turns(self) -> int:
        """The turns that wait, and those of the job."""
        return len(self.waiting) + (self.work.turns if self.work else 0)

    @property
    def size(self) -> int:
        """The bytes of these turns."""
        return sum(item.size for item in self.waiting) + (self.work.size if self.work else 0)


class Slots:
    """Admits attempts, first come, first served.

    Half of the slots are out of reach for one actor, and for lanes that failed: a failure delays
    nobody else.
    """

    def __init__(self) -> None:
        self._queue: deque[tuple[Lane, asyncio.Future[None]]] = deque()
        self._running: list[Lane] = []

    @asynccontextmanager
    async def of(self, lane: Lane) -> AsyncIterator[None]:
        """Wait for a slot, and give it back."""
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
    """Runs jobs in the background: those of a session in order, several sessions at once.

    Callers neither wait nor see failures.
    """

    def __init__(self, name: str, take: Callable[[deque[Waiting]], Work]) -> None:
        """`take` removes one or more waiting items of a session and turns them into a job."""
        self.name, self._take = name, take
        self._lanes: dict[Who, Lane] = {}
        self._slots, self._reported = Slots(), BACKLOG // 2
        self._closing, self._is_closed = asyncio.Event(), False

    @property
    def turns(self) -> int:
        """How many turns are not done yet; other threads may ask."""
        return sum(lane.turns for lane in [*self._lanes.values()])

    @property
    def is_waiting(self) -> bool:
        """Whether some work is not done yet."""
        return bool(self._lanes)

    def put(self, who: Who, item: Waiting) -> None:
        """Add an item to the lane of a session, and start."""
        if self._is_closed:
            return self._lose(1, "the process ends")
        if who not in self._lanes:
            lane = self._lanes[who] = Lane(who.actor)
            # In a context of its own: that of the turn would keep its session in memory.
            work, loop = self._run(who, lane), asyncio.get_running_loop()
            lane.task = loop.create_task(work, context=Context())
        self._lanes[who].waiting.append(item)
        self._lose(self._drop(who.actor), "too many wait")
        if self.turns >= 2 * self._reported:
            self._reported = self.turns
            log.warning("%s: %d turns wait to be recorded", self.name, self.turns)

    async def close(self, seconds: float) -> None:
        """Finish within `seconds`, without long pauses; the rest is lost, with an error."""
        self._closing.set()
        end = time.monotonic() + seconds
        while (tasks := self._tasks) and (left := end - time.monotonic()) > 0:
            await asyncio.wait(tasks, timeout=left)
        self._is_closed = True
        lanes, tasks = [*self._lanes.values()], self._tasks
        self._lanes.clear()
        lost = Counter[str]()
        for lane in lanes:
            lost[lane.why or "the process ends"] += lane.turns
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for why, turns in lost.items():
            self._lose(turns, why)

    @property
    def _tasks(self) -> list[asyncio.Task[None]]:
        return [lane.task for lane in self._lanes.values() if lane.task]

    async def _run(self, who: Who, lane: Lane) -> None:
        while lane.waiting:
            lane.work, lane.began, lane.why = None, time.monotonic(), ""
            try:
                await with_retries(
                    partial(self._attempt, lane),
                    lambda exc: isinstance(exc, Exception) and not isinstance(exc, MemoryRefused),
                    lambda _: time.monotonic() - lane.began > MAX_WORK,
                    before_sleep=partial(self._note, lane),
                    sleep=self._pause,
                )
                lane.has_failed = False
            except Exception as error:  # noqa: BLE001 (a store of the owner may raise any)
                self._lose(lane.work.turns if lane.work else 0, describe_failure(error))
            lane.work = None
        self._lanes.pop(who, None)  # it is gone if the queue has been closed
        if self.turns < BACKLOG // 2:
            self._reported = BACKLOG // 2

    async def _attempt(self, lane: Lane) -> object:
        async with self._slots.of(lane):
            if lane.work is None:
                if not lane.waiting:
                    return None  # all were dropped
                size = lane.size
                lane.work, lane.began = self._take(lane.waiting), time.monotonic()
                lane.work.size = size - lane.size
            return await self._try(lane, lane.work)

    async def _try(self, lane: Lane, work: Work) -> object:
        attempt, passed = asyncio.ensure_future(work.attempt()), 0
        try:
            # Counts one-second ticks, because `chat` stops the event loop between turns.
            while passed < (lane.patience if self._closing.is_set() else MAX_ATTEMPT):
                if (await asyncio.wait({attempt}, timeout=1))[0] and not attempt.cancelled():
                    return attempt.result()
                passed += 1
        finally:
            attempt.cancel()
        if self._closing.is_set():
            lane.patience *= 2  # the service may be slow, not dead
        raise MemoryUnavailable("no answer in time")

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()
            await asyncio.sleep(CLOSING_PAUSE)

    def _note(self, lane: Lane, state: RetryCallState) -> None:
        lane.has_failed = True
        if state.outcome and (error := state.outcome.exception()):
            lane.why = describe_failure(error)

    def _drop(self, actor: str) -> int:
        """Drop the oldest items beyond the limits, and return their number.

        Beyond the limit of all, the actor with the largest backlog loses some.
        """
        lanes, dropped = defaultdict[str, list[Lane]](list), 0
        for lane in self._lanes.values():
            lanes[lane.actor].append(lane)
        while _load(lanes[actor]) > 1 and _drop_oldest(lanes[actor]):
            dropped += 1
        while _load(self._lanes.values()) > MAX_LOAD:
            if not _drop_oldest(max(lanes.values(), key=_load)):
                break
            dropped += 1
        return dropped

    def _lose(self, turns: int, why: str) -> None:
        if turns:
            log.error("%s: turns not recorded: %d (%s)", self.name, turns, why)


def _load(lanes: Iterable[Lane]) -> float:
    """Return the work of lanes as a part of what an actor may have."""
    work = [(lane.turns, lane.size) for lane in lanes]
    turns, size = sum(turns for turns, _ in work), sum(size for _, size in work)
    return max(turns / MAX_TURNS, size / MAX_BYTES)


def _drop_oldest(lanes: Iterable[Lane]) -> bool:
    """Drop the oldest item that waits, if there is one."""
    waiting = [lane.waiting for lane in lanes if lane.waiting]
    if waiting:
        min(waiting, key=lambda items: items[0].number).popleft()
    return bool(waiting)
