"""Background work: in order, retried until it succeeds, and bounded."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from tenacity.stop import stop_after_attempt, stop_after_delay, stop_base
from tenacity.wait import wait_random_exponential

from .base import MemoryRefused, MemoryUnavailable, describe_failure

log = logging.getLogger(__name__)
MAX_TURNS, MAX_BYTES = 1000, 16_777_216  # that may wait
# In seconds: pauses between attempts, an attempt, and all attempts of a job.
FIRST_PAUSE, MAX_PAUSE, MAX_ATTEMPT, MAX_WORK = 0.5, 30, 30, 600
CLOSING_PAUSE, CLOSING_ATTEMPT = 0.2, 2
THREE_TIMES = stop_after_attempt(3)


def is_transient(error: BaseException) -> bool:
    """Whether a call of the memory may succeed soon."""
    return isinstance(error, MemoryUnavailable) and error.transient


async def with_retries(
    work: Callable[[], Awaitable[Any]],
    is_retried: Callable[[BaseException], bool] = is_transient,
    stop: stop_base = THREE_TIMES,
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


@dataclass
class Work:
    """A job that is attempted as a whole, for `turns` turns."""

    attempt: Callable[[], Awaitable[object]]
    turns: int = 1


class RetryQueue:
    """Runs one job at a time in the background. Callers neither wait nor see failures."""

    def __init__(self, name: str, take: Callable[[deque[Waiting]], Work]) -> None:
        """`take` removes one or more waiting items and turns them into a job."""
        self.name, self._take = name, take
        self._waiting: deque[Waiting] = deque()
        self._turns = 0  # in the running job
        self._why = ""  # of the last failure
        self._task: asyncio.Task[None] | None = None
        self._closing, self._is_closed = asyncio.Event(), False

    @property
    def is_waiting(self) -> bool:
        """Whether some work is not done yet."""
        return bool(self._waiting) or self._turns > 0

    def put(self, item: Waiting) -> None:
        """Add an item, and start."""
        if self._is_closed:
            return self._lose(1, "the process ends")
        self._waiting.append(item)
        dropped, size = 0, sum(item.size for item in self._waiting)
        while len(self._waiting) > MAX_TURNS or size > MAX_BYTES:
            size -= self._waiting.popleft().size
            dropped += 1
        self._lose(dropped, "too many wait")
        if self._task is None or self._task.done():
            # In a context of its own: that of the turn would keep its session in memory.
            self._task = asyncio.get_running_loop().create_task(self._run(), context=Context())

    async def close(self, seconds: float) -> None:
        """Finish within `seconds`, without long pauses; the rest is lost, with an error."""
        self._closing.set()
        if self._task:
            await asyncio.wait({self._task}, timeout=seconds)
            self._task.cancel()
            await asyncio.wait({self._task})
        self._is_closed = True
        self._lose(len(self._waiting) + self._turns, self._why or "the process ends")
        self._waiting.clear()
        self._turns = 0

    async def _run(self) -> None:
        while self._waiting:
            work = self._take(self._waiting)
            self._turns, self._why = work.turns, ""
            try:
                await with_retries(
                    partial(self._attempt, work),
                    lambda exc: isinstance(exc, Exception) and not isinstance(exc, MemoryRefused),
                    stop_after_delay(MAX_WORK),
                    before_sleep=self._note,
                    sleep=self._pause,
                )
            except Exception as error:  # noqa: BLE001 (a store of the owner may raise any)
                self._lose(work.turns, describe_failure(error))
            self._turns = 0

    async def _attempt(self, work: Work) -> object:
        attempt, passed = asyncio.ensure_future(work.attempt()), 0
        try:
            # Counts one-second ticks, because `chat` stops the event loop between turns.
            while passed < (CLOSING_ATTEMPT if self._closing.is_set() else MAX_ATTEMPT):
                if (await asyncio.wait({attempt}, timeout=1))[0] and not attempt.cancelled():
                    return attempt.result()
                passed += 1
        finally:
            attempt.cancel()
        raise MemoryUnavailable("no answer in time")

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()
            await asyncio.sleep(CLOSING_PAUSE)

    def _note(self, state: RetryCallState) -> None:
        if state.outcome and (error := state.outcome.exception()):
            self._why = describe_failure(error)

    def _lose(self, turns: int, why: str) -> None:
        if turns:
            log.error("%s: turns not recorded: %d (%s)", self.name, turns, why)
