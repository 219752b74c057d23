"""Limits an actor's turns and tokens per minute and per UTC day."""

import logging
import time
from typing import Protocol
from weakref import WeakSet

from cachetools import TTLCache

from ..contract import AgentError, Turn
from .settings import AuthSettings

log = logging.getLogger(__name__)
MINUTE = 60
DAY = 86_400
PERIODS = {MINUTE: "minute", DAY: "day"}
MAX_COUNTERS = 100_000  # per process; above it, the least recently used counters restart


class CountersUnavailable(Exception):
    """The counters did not answer. The message gives the reason, without secrets."""


class Counters(Protocol):
    """Counters that expire."""

    async def add(self, name: str, number: int, seconds: int) -> int:
        """Add to a counter that expires after `seconds`, and return its value.

        Raises CountersUnavailable.
        """


class InProcess:
    """Counters of this process."""

    def __init__(self) -> None:
        self._caches: dict[int, TTLCache[str, int]] = {
            seconds: TTLCache(MAX_COUNTERS, seconds) for seconds in PERIODS
        }

    async def add(self, name: str, number: int, seconds: int) -> int:
        cache = self._caches[seconds]
        cache[name] = cache.get(name, 0) + number
        return cache[name]


class Limits:
    """The limits of every actor. Fails open if the counters are unavailable."""

    def __init__(self, settings: AuthSettings) -> None:
        self.counters: Counters = InProcess()
        turns = {MINUTE: settings.actor_turns_per_minute, DAY: settings.actor_turns_per_day}
        tokens = {MINUTE: settings.actor_tokens_per_minute, DAY: settings.actor_tokens_per_day}
        self.admitted = WeakSet[Turn]()  # the turns that have sent a request to a model
        self._turns = {seconds: maximum for seconds, maximum in turns.items() if maximum}
        self._tokens = {seconds: maximum for seconds, maximum in tokens.items() if maximum}

    @property
    def has_tokens(self) -> bool:
        """Whether tokens are limited."""
        return bool(self._tokens)

    async def begin(self, actor: str) -> None:
        """Count a turn or a fork. Raises AgentError if the actor has reached a limit."""
        now = time.time()
        if error := await self.spend(actor, 0, now):
            raise error
        for seconds, maximum in self._turns.items():
            if await self._add(actor, "turns", 1, seconds, now) > maximum:
                raise _used_up("turns", maximum, seconds, now)

    async def spend(self, actor: str, tokens: int, now: float) -> AgentError | None:
        """Count tokens; return an error if the actor had already reached a limit.

        A negative number reverts tokens that were counted at the same time `now`.
        """
        error = None
        for seconds, maximum in self._tokens.items():
            before = await self._add(actor, "tokens", tokens, seconds, now) - tokens
            if before >= maximum and not error:
                error = _used_up("tokens", maximum, seconds, now)
        return error

    async def _add(self, actor: str, kind: str, number: int, seconds: int, now: float) -> int:
        name = f"{kind}:{seconds}:{int(now // seconds)}:{actor}"
        try:
            return await self.counters.add(name, number, seconds)
        except CountersUnavailable as error:
            log.warning("limits were not applied to an actor: %s", error)
            return 0


def _used_up(kind: str, maximum: int, seconds: int, now: float) -> AgentError:
    limit = f"{maximum} {kind} per {PERIODS[seconds]}"
    error = AgentError("rate_limited", f"This actor has used up {limit}.")
    error.retry_after = int(seconds - now % seconds) + 1
    return error
