"""What a session store adds to the errors of the HTTP contract."""

from ..contract import ERRORS, AgentError

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
ERRORS.update(STORE_ERRORS)


class StoreError(AgentError):
    """A failure by its type in STORE_ERRORS; `detail` is for the log only."""

    def __init__(self, type: str, detail: str = "") -> None:
        super().__init__(type, detail=detail)
