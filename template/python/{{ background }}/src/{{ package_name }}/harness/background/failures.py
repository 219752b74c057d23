"""The errors of background turns, in addition to those of the HTTP contract."""

import json
from typing import Literal

from ..contract import ERRORS, AgentError
from ..http.server import Events

ERRORS["events_lost"] = (
    409,
    "The first events of this turn were dropped: its reply will be in the session.",
)
ERRORS["turn_elsewhere"] = (
    409,
    "Another replica may run this turn: send the request there, or store sessions in Valkey.",
)
ERRORS["turn_stopped"] = (409, "The turn was stopped; it was not saved.")
ERRORS["turn_lost"] = (
    503,
    "The process ended during the turn; send the request again with the same Idempotency-Key.",
)

# The form of the recorded events: of POST /invocations, or of POST /api/chat.
Format = Literal["events", "chat"]
DONE = "data: [DONE]\n\n"  # the end of a stream of useChat
ABORT = {"type": "abort"}  # the last part of a stopped turn of useChat


def format_error(format: Format, error: AgentError) -> bytes:
    """Return the last events of a failed turn."""
    if format == "chat":
        return format_part(error) + DONE.encode()
    return Events().format_error(error).encode()


def format_part(error: AgentError) -> bytes:
    """Return the part of useChat for an error."""
    failure = {"type": "error", "errorText": f"{error.type}: {error}"}
    part = ABORT if error.type == "turn_stopped" else failure
    return f"data: {json.dumps(part, separators=(',', ':'))}\n\n".encode()
