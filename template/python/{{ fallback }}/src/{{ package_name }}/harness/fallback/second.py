"""The rules for switching a call to the fallback model, and its log lines."""

import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from ..contract import Turn, is_busy
from ..deadline import time_limit
from ..log import TEMPORARY_KINDS, describe

# Failures that may be temporary, as `describe` shows them: by their status, or else their names.
STATUS = r"HTTP ([45]\d\d)"
TEMPORARY_STATUS = r"408|409|429|5\d\d"
TEMPORARY = (
    r"[Tt]hrottl|[Tt]imeout|[Uu]navailable|[Ii]nternalServer|NotReady"
    rf"|\b({'|'.join(TEMPORARY_KINDS)})\b"
)
# Those of a connection, only until it answers.
DISCONNECTED = r"Connect(ion)?(Closed|Reset|Refused|Aborted)?Error|RemoteProtocolError"
LASTING = "AgentError|ContextWindowOverflow"

log = logging.getLogger(__name__)


class Second:
    """The second model, for the calls of one turn; `build` returns it.

    The first model has `seconds` for its first content: text, reasoning or a tool call.
    """

    def __init__(self, turn: Turn, name: str, build: Callable[[], Any], seconds: int) -> None:
        self.turn, self.name, self.build, self.seconds = turn, name, build, seconds

    async def stream(
        self,
        first: AsyncGenerator[Any],
        ask: Callable[[Any], AsyncGenerator[Any]],
        is_content: Callable[[Any], bool],
    ) -> AsyncGenerator[Any]:
        """Yield the events of the first model or, if it fails, of the second model.

        The second model answers if the first model fails before its first content. `ask` returns
        the events of a model for the same call.
        """
        async with aclosing(first) as events:
            before = list[Any]()
            try:
                async with time_limit(self.seconds):
                    async for event in events:
                        before.append(event)
                        if is_content(event):
                            break
            except Exception as error:  # noqa: BLE001 (`take_over` raises those that last)
                model = self.take_over(error, has_answered=bool(before))
            else:
                for event in before:
                    yield event
                async for event in events:
                    yield event
                return
        async with aclosing(ask(model)) as events:
            async for event in events:
                self.answers()
                yield event

    def take_over(self, error: Exception, *, has_answered: bool) -> Any:
        """Return the second model, or raise the error if it is not a temporary one.

        `error` is why the first model sent no content; it may have begun an answer.
        """
        why = describe(error)
        is_temporary = _is_temporary(why)
        if re.search(DISCONNECTED, why):  # a client may show it as a status
            is_temporary = not has_answered
        if re.search(LASTING, why) or not is_temporary:
            raise error
        where = self.turn.session_id
        log.warning("session %s: MODEL failed, calling MODEL_FALLBACK: %s", where, why)
        return self.build()

    def answers(self) -> None:
        """Note for the log line of the turn that the second model answers."""
        self.turn.detail = f"answered by {self.name}"


def _is_temporary(why: str) -> bool:
    if is_busy(why):
        return True
    if status := re.search(STATUS, why):
        return re.fullmatch(TEMPORARY_STATUS, status[1]) is not None
    return re.search(TEMPORARY, why) is not None
