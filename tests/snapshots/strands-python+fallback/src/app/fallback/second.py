"""When the second model takes over a call, and what the log says about it."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from ..contract import Turn
from ..log import describe

# Failures that may be temporary, as `describe` shows them.
TEMPORARY = (
    r"HTTP (408|409|429|5\d\d)|[Tt]hrottl|[Tt]imeout|[Uu]navailable|internalServer|NotReady"
    r"|Connect(ion)?(Closed|Reset|Refused|Aborted)?Error|RemoteProtocolError"
)

log = logging.getLogger(__name__)


class Second:
    """The second model, for the calls of one turn; `build` returns it.

    The first model has `seconds` for its first event.
    """

    def __init__(self, turn: Turn, name: str, build: Callable[[], Any], seconds: int) -> None:
        self.turn, self.name, self.build, self.seconds = turn, name, build, seconds

    async def stream(
        self, first: AsyncGenerator[Any], ask: Callable[[Any], AsyncGenerator[Any]]
    ) -> AsyncGenerator[Any]:
        """Yield the events of the first model, or if it fails before them, of the second one.

        `ask` returns the events of a model for the same call.
        """
        async with aclosing(first) as events:
            try:
                async with asyncio.timeout(self.seconds):
                    event = await anext(events, None)
            except Exception as error:  # noqa: BLE001 (`take_over` raises those that last)
                model = self.take_over(error)
            else:
                while event is not None:
                    yield event
                    event = await anext(events, None)
                return
        async with aclosing(ask(model)) as events:
            async for event in events:
                self.answers()
                yield event

    def take_over(self, error: Exception) -> Any:
        """Return the second model, or raise the error if it is not a temporary one.

        `error` is why the first model sent nothing.
        """
        why = describe(error)
        if "AgentError" in why or not re.search(TEMPORARY, why):
            raise error
        where = self.turn.session_id
        log.warning("session %s: MODEL failed, calling MODEL_FALLBACK: %s", where, why)
        return self.build()

    def answers(self) -> None:
        """Note for the log line of the turn that the second model answers."""
        self.turn.detail = f"answered by {self.name}"
