"""The words of the HTTP contract: its headers, its errors, and what valid input is."""

import json
import re
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

PREFIX = "X-Amzn-Bedrock-AgentCore-Runtime-"
SESSION_HEADER = PREFIX + "Session-Id"
ACTOR_HEADERS = (PREFIX + "User-Id", PREFIX + "Custom-Actor-Id")
KEY_HEADERS = ("Idempotency-Key", PREFIX + "Custom-Idempotency-Key")

SESSION_ID = "[A-Za-z0-9][A-Za-z0-9_-]{0,255}"
ACTOR_ID = "(?=.{1,255}$)[A-Za-z0-9][A-Za-z0-9_/-]*(:[A-Za-z0-9_/-]+)*"
KEY = "[!-~]{1,128}"
# Unicode White_Space and U+FEFF; Python's own idea of white space is another.
BLANK = "[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]*"

# Error type -> HTTP status, and the message for a caller, who is told no more than this.
ERRORS = {
    "invalid_json": (400, "The body is not one JSON value in UTF-8 of at most 64 levels."),
    "invalid_request": (400, "The request is not valid."),
    "invalid_session_id": (400, "A session id is 1 to 256 of A-Z a-z 0-9 _ -, not first _ or -."),
    "actor_required": (400, "This agent remembers people: name the actor in a header."),
    "invalid_actor": (400, "An actor id is 1 to 255 of A-Z a-z 0-9 _ - / :, so no e-mail address."),
    "session_forbidden": (403, "This session belongs to another actor."),
    "origin_forbidden": (403, "Only pages and programs of this machine may call this address."),
    "not_found": (404, "There is nothing here: use POST /invocations or GET /ping."),
    "method_not_allowed": (405, "This path does not take this method."),
    "payload_too_large": (413, "The body is too large."),
    "session_busy": (429, "Too many turns wait for this session."),
    "internal_error": (500, "Something went wrong here; nothing was kept of this turn."),
    "model_failed": (502, "The model failed; nothing was kept of this turn."),
    "empty_reply": (502, "The model answered nothing; nothing was kept of this turn."),
    "reply_incomplete": (502, "The model did not finish; nothing was kept of this turn."),
    "draining": (503, "The server is shutting down."),
    "turn_timeout": (504, "The turn took too long; nothing was kept of it."),
}


class AgentError(Exception):
    """A refusal or a failure by its type in ERRORS; `detail` is for the log only."""

    def __init__(self, type: str, message: str = "", detail: str = "") -> None:
        self.type, self.detail = type, detail
        self.status, general = ERRORS[type]
        self.body = {"error": {"type": type, "message": message or general}}
        super().__init__(message or general)


@dataclass(frozen=True)
class Ask:
    """What a caller asks for: a turn with this prompt, or with None the end of the session."""

    session_id: str
    actor: str | None
    key: str | None
    prompt: str | None


def is_blank(text: str) -> bool:
    """Whether a text holds nothing but Unicode white space and U+FEFF."""
    return re.fullmatch(BLANK, text) is not None


def well_formed(text: str) -> str:
    """The text with surrogate pairs joined, and a half that is left over as U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def check_prompt(value: Any, max_chars: int) -> str:
    """Return a prompt of at most max_chars code points, or raise `invalid_request`."""
    if not isinstance(value, str) or is_blank(value) or len(value) > max_chars:
        what = f"The prompt must be a string, not blank, of at most {max_chars} characters."
        raise AgentError("invalid_request", what)
    if re.search("[\ud800-\udfff]", value):
        raise AgentError("invalid_request", "The prompt holds half of a surrogate pair.")
    return value


def parse_json(body: bytes) -> Any:
    """The value of a JSON text (RFC 8259) of at most 64 levels, or raise `invalid_json`."""
    try:
        text = body.decode()
        outside_strings = re.sub(r'"(?:[^"\\]++|\\.)*+"?', "", text, flags=re.DOTALL)
        if max(accumulate((c in "[{") - (c in "]}") for c in outside_strings), default=0) > 64:
            raise ValueError("nested too deeply")
        # int() refuses NaN and Infinity, as JSON does; but also long numbers, which are JSON.
        return json.loads(text, parse_constant=int, parse_int=float)
    except ValueError:
        raise AgentError("invalid_json") from None


def describe(error: BaseException) -> str:
    """What kind of error it was; not its text, which may quote a prompt or a reply."""
    status = getattr(error, "status_code", None)
    kind = type(error).__name__ + (f" (HTTP {status})" if status else "")
    return f"{kind} < {describe(error.__cause__)}" if error.__cause__ else kind
