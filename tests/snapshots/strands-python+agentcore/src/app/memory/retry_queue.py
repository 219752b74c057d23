"""Work that is done outside the turns: in order, retried until it succeeds, and bounded."""

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
# In seconds: pauses between attempts, one attempt, and all attempts for one piece of work.
FIRST_PAUSE, MAX_PAUSE, MAX_ATTEMPT, MAX_WORK = 0.5, 30, 30, 600
CLOSING_PAUSE, CLOSING_ATTEMPT = 0.2, 2
THREE_TIMES = stop_after_attempt(3)


def is_transient(error: BaseException) -> bool:
    """Whether the memory may succeed when it is asked again soon."""
    return isinstance(error, MemoryUnavailable) and error.transient


async def with_retries(
    work: Callable[[], Awaitable[Any]],
    is_retried: Callable[[BaseException], bool] = is_transient,
    stop: stop_base = THREE_TIMES,
    **options: Any,
) -> Any:
    """Return what `work` returns, now or after some attempts; raise its last error."""
    wait = wait_random_exponential(FIRST_PAUSE, MAX_PAUSE, min=FIRST_PAUSE)
    retry = retry_if_exception(is_retried)
    retrying = AsyncRetrying(stop=stop, wait=wait, retry=retry, reraise=True, **options)
    return await retrying(work)


@dataclass
class Waiting:
    """What a turn left to do; `size` counts its bytes."""

    what: Any
    size: int


@dataclass
class Work:
    """What is attempted as a whole, for so many turns."""

    attempt: Callable[[], Awaitable[object]]
    turns: int = 1


class RetryQueue:
    """Does one piece of work at a time. Nobody waits for it, and nothing fails by it."""

    def __init__(self, name: str, take: Callable[[deque[Waiting]], Work]) -> None:
        """`take` removes the first waiting, and what can be done with it, and makes work of it."""
        self.name, self._take = name, take
        self._waiting: deque[Waiting] = deque()
        self._turns = 0  # in the work that is attempted
        self._why = ""  # the last attempt failed
        self._task: asyncio.Task[None] | None = None
        self._closing, self._is_closed = asyncio.Event(), False

    @property
    def is_waiting(self) -> bool:
        """Whether something is still to be done."""
        return bool(self._waiting) or self._turns > 0

    def put(self, waiting: Waiting) -> None:
        """Add something to do, and start."""
        if self._is_closed:
            return self._lose(1, "the process ends")
        self._waiting.append(waiting)
        dropped, size = 0, sum(one.size for one in self._waiting)
        while len(self._waiting) > MAX_TURNS or size > MAX_BYTES:
            size -= self._waiting.popleft().size
            dropped += 1
        self._lose(dropped, "too many wait")
        if self._task is None or self._task.done():
            # In a context of its own: that of the turn would keep its session in memory.
            self._task = asyncio.get_running_loop().create_task(self._run(), context=Context())

    async def close(self, seconds: float) -> None:
        """Finish within this time, without long pauses; what is left is lost, with an error."""
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
                    lambda it: isinstance(it, Exception) and not isinstance(it, MemoryRefused),
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
            # Second by second: while the loop stands still, as in `chat` between turns, no time
            # passes.
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
