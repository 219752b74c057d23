"""When the second model takes over a call, and what the log says about it."""

import logging
import re
from collections.abc import Callable
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
    """The second model, for the calls of one turn; `build` returns it."""

    def __init__(self, turn: Turn, name: str, build: Callable[[], Any]) -> None:
        self.turn, self.name, self.build = turn, name, build

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
