"""The rules for switching a call to the fallback model, and its log lines."""

import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from ..contract import Turn, is_busy
from ..deadline import time_limit
from ..log import TEMPORARY_KINDS, describe

# Patterns of temporary failures: by status, otherwise by name.
STATUS = r"HTTP ([45]\d\d)"
TEMPORARY_STATUS = r"408|409|429|5\d\d"
TEMPORARY = (
    r"[Tt]hrottl|[Tt]imeout|[Uu]navailable|[Ii]nternalServer|NotReady"
    rf"|\b({'|'.join(TEMPORARY_KINDS)})\b"
)
# Connection failures are temporary only before an answer.
DISCONNECTED = r"Connect(ion)?(Closed|Reset|Refused|Aborted)?Error|RemoteProtocolError"
LASTING = "AgentError|ContextWindowOverflow"

log = logging.getLogger(__name__)


class FallbackSwitch:
    """Switches calls of one turn to the fallback model; `build` returns this model.

    The first model must send content (text, reasoning or a tool call) within `seconds`.
    `turn.model` is `name` while the last answer comes from the fallback model.
    """

    def __init__(self, turn: Turn, name: str, build: Callable[[], Any], seconds: int) -> None:
        self.turn = turn
        self.name = name
        self.build = build
        self.seconds = seconds
        self.first_name = turn.model  # "", unless another capability chose the first model

    async def stream(
        self,
        first: AsyncGenerator[Any],
        ask: Callable[[Any], AsyncGenerator[Any]],
        is_content: Callable[[Any], bool],
    ) -> AsyncGenerator[Any]:
        """Yield the events of the first model or, if it fails, of the fallback model.

        The fallback model answers if the first model fails before its first content. `ask` returns
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
            except Exception as error:  # noqa: BLE001 (`switch_model` raises lasting errors)
                model = self.switch_model(error, has_answered=bool(before))
            else:
                self.turn.model = self.first_name
                for event in before:
                    yield event
                async for event in events:
                    yield event
                return
        async with aclosing(ask(model)) as events:
            async for event in events:
                self.turn.model = self.name
                yield event

    def switch_model(self, error: Exception, *, has_answered: bool) -> Any:
        """Return the fallback model, or raise the error if it is not temporary.

        `has_answered`: the first model had begun an answer.
        """
        reason = describe(error)
        is_temporary = _is_temporary(reason)
        if re.search(DISCONNECTED, reason):  # some clients report it with a status
            is_temporary = not has_answered
        if re.search(LASTING, reason) or not is_temporary:
            raise error
        session_id = self.turn.session_id
        log.warning("session %s: MODEL failed, calling MODEL_FALLBACK: %s", session_id, reason)
        return self.build()


def _is_temporary(reason: str) -> bool:
    if is_busy(reason):
        return True
    if status := re.search(STATUS, reason):
        return re.fullmatch(TEMPORARY_STATUS, status[1]) is not None
    return re.search(TEMPORARY, reason) is not None
