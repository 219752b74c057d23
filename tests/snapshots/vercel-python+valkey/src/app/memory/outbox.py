"""Work that waits to be done beside the turns: in order, again until it succeeds, and bounded."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from random import uniform
from typing import Any

from ..contract import describe
from .backends import Unavailable
from .errors import Refused

log = logging.getLogger(__name__)
TURNS, BYTES = 1000, 16_777_216  # that may wait
# In seconds: the pauses between attempts, one attempt, and all of them for one piece of work.
FIRST_PAUSE, LONGEST_PAUSE, ATTEMPT, LONGEST = 0.5, 30, 30, 600
CLOSING_PAUSE, CLOSING_ATTEMPT = 0.2, 2


@dataclass
class Waiting:
    """What a turn left to do: `what` is for the one who takes it, `size` its bytes of text."""

    what: Any
    size: int


@dataclass
class Work:
    """What is tried as a whole, and again; `turns` are in it."""

    attempt: Callable[[], Awaitable[object]]
    turns: int = 1


class Outbox:
    """Does one piece of work at a time. Nobody waits for it, and nothing fails by it."""

    def __init__(self, name: str, take: Callable[[deque[Waiting]], Work]) -> None:
        """`take` makes work of the first that waits, and of more; it removes what it took."""
        self.name, self._take = name, take
        self._waiting: deque[Waiting] = deque()
        self._work: Work | None = None  # that is tried
        self._since, self._why, self._size = 0.0, "", 0  # when that began, why it failed last
        self._task: asyncio.Task[None] | None = None
        self._is_pausing = self._is_closing = self._is_closed = False

    @property
    def is_waiting(self) -> bool:
        """Whether something is still to be done."""
        return bool(self._waiting or self._work)

    def put(self, waiting: Waiting) -> None:
        """Take what is to be done, and begin."""
        if self._is_closed:
            return self._lose(1, "the process ends")
        self._waiting.append(waiting)
        self._size += waiting.size
        dropped = 0
        while len(self._waiting) > TURNS or self._size > BYTES:
            self._size -= self._waiting.popleft().size
            dropped += 1
        self._lose(dropped, "too many wait")
        return self.start()

    def start(self) -> None:
        """Begin, unless that has happened: now, or by the next call if no loop runs."""
        if not self.is_waiting or (self._task and not self._task.done()):
            return
        with suppress(RuntimeError):
            loop, self._is_pausing = asyncio.get_running_loop(), False
            # In a context of its own: that of the turn would keep its session in memory.
            self._task = loop.create_task(self._run(), context=Context())

    async def close(self, seconds: float) -> None:
        """Do what waits within this time; what cannot be done is lost, and the log says so."""
        end = time.monotonic() + seconds
        self._is_closing, work = True, self._work
        if not self._is_pausing:
            await self._wait(min(CLOSING_ATTEMPT, seconds))
        if self._work is work:
            await self._stop()  # a pause, or an attempt that may hang
        self.start()
        await self._wait(max(0, end - time.monotonic()))
        self._is_closed = True
        await self._stop()
        turns = len(self._waiting) + (self._work.turns if self._work else 0)
        self._waiting.clear()
        self._work = None
        self._lose(turns, self._why or "the process ends")

    async def _stop(self) -> None:
        if self._task:
            self._task.cancel()
            await self._wait(None)

    async def _wait(self, seconds: float | None) -> None:
        if self._task and not self._task.done():
            await asyncio.wait({self._task}, timeout=seconds)

    async def _run(self) -> None:
        while self.is_waiting:
            if self._work is None:
                self._work, self._since = self._take(self._waiting), time.monotonic()
                self._size = sum(waiting.size for waiting in self._waiting)
            why = await self._do(self._work)
            if why:
                self._lose(self._work.turns, why)
            self._work = None

    async def _do(self, work: Work) -> str:
        """Try until it is done, or is not to be; return why not."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self._attempt(work)
                return ""
            except Refused as error:
                return str(error)
            except Exception as error:  # noqa: BLE001 (of a store of the owner's it may be any)
                why = str(error) if isinstance(error, Unavailable) else describe(error)
            self._why = why
            delay = CLOSING_PAUSE if self._is_closing else pause * uniform(0.5, 1)
            if time.monotonic() + delay - self._since > LONGEST:
                return why
            self._is_pausing = True
            await asyncio.sleep(delay)
            self._is_pausing = False
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _attempt(self, work: Work) -> object:
        attempt = asyncio.ensure_future(work.attempt())
        try:
            # By the second: that the loop stands still, as in `chat` between turns, is no time.
            for _second in range(CLOSING_ATTEMPT if self._is_closing else ATTEMPT):
                done, _ = await asyncio.wait({attempt}, timeout=1)
                if done and not attempt.cancelled():
                    return await attempt
        finally:
            attempt.cancel()
        raise Unavailable("no answer in time")

    def _lose(self, turns: int, why: str) -> None:
        if turns:
            log.error("%s: turns not recorded: %d (%s)", self.name, turns, why)
