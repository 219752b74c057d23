"""What a session store and long-term memory add to the errors of the HTTP contract."""

from ..contract import ERRORS, AgentError
from .backends import Unavailable

_CORRUPT = "What was stored of this session cannot be read. It was set aside: "
_DOWN = "The session store cannot be used. Ask again later, with the same idempotency key."
STORE_ERRORS = {
    "session_conflict": (
        409,
        "Another instance went on with this session; nothing was kept of this turn.",
    ),
    "session_corrupt": (409, _CORRUPT + "the next turn starts anew."),
    "session_too_large": (
        413,
        "The session has become too large to be stored; nothing was kept of this turn.",
    ),
    "store_unavailable": (503, _DOWN),
}
_ACTOR = ERRORS["invalid_actor"][1]
MEMORY_ERRORS = {
    "actor_required": (
        400,
        "This agent remembers people: say who you are, with --actor ID or in a header.",
    ),
    "invalid_actor": (400, f"{_ACTOR} Map one, for example to its SHA-256."),
}
ERRORS.update(STORE_ERRORS | MEMORY_ERRORS)


class Refused(Unavailable):
    """What was asked for is not valid, and never will be."""


class StoreError(AgentError):
    """A failure by its type in STORE_ERRORS; `detail` is for the log only."""

    def __init__(self, type: str, detail: str = "") -> None:
        super().__init__(type, detail=detail)
