"""The tokens of model requests: estimated when a request is sent, corrected at its end."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..contract import Turn
from .limits import Limits

CHARS_PER_TOKEN = 4


class Request:
    """A request to a model and its response."""

    def __init__(self, chars: int) -> None:
        self.chars = chars  # number of characters sent and received
        self.usage = 0  # the tokens that the provider reports; 0 means unknown

    @property
    def tokens(self) -> int:
        """The usage, or an estimate."""
        return self.usage or self.chars // CHARS_PER_TOKEN + 1


class Meter:
    """Counts the requests of an actor."""

    def __init__(self, limits: Limits, actor: str, turn: Turn | None) -> None:
        self._limits = limits
        self._actor = actor
        self._turn = turn

    @asynccontextmanager
    async def request(self, chars: int) -> AsyncIterator[Request]:
        """Count a request of `chars` characters; correct the count at its end.

        Rejects the first request of a turn if the actor has no tokens left: another turn may have
        used them since this turn began. Raises AgentError.
        """
        request = Request(chars)
        now = time.time()
        estimate = request.tokens
        error = await self._limits.spend(self._actor, estimate, now)
        if error and self._turn and self._turn not in self._limits.admitted:
            await self._limits.spend(self._actor, -estimate, now)
            raise error
        if self._turn:
            self._limits.admitted.add(self._turn)
        try:
            yield request
        finally:
            await self._limits.spend(self._actor, request.tokens - estimate, now)
