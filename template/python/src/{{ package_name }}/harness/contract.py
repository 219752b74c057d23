"""The HTTP contract (headers, errors, input formats) and the types of turns."""

import asyncio
import json
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:  # importing pydantic takes 0.1 s
    from pydantic import BaseModel

PREFIX = "X-Amzn-Bedrock-AgentCore-Runtime-"
SESSION_HEADER = PREFIX + "Session-Id"
ACTOR_HEADERS = (PREFIX + "User-Id", PREFIX + "Custom-Actor-Id")
TOKEN_HEADER = "X-API-Token"  # an alternative to Authorization
NO_SNIFF = {"X-Content-Type-Options": "nosniff"}  # browsers must not guess another type
KEY_HEADERS = ("Idempotency-Key", PREFIX + "Custom-Idempotency-Key")

Json = Mapping[str, "Json"] | Sequence["Json"] | str | float | bool | None

# The second form accepts each id of AgentCore Runtime that an HTTP header can contain.
SESSION_ID = "[A-Za-z0-9][A-Za-z0-9_-]{0,255}|[!-~][ -~]{31,254}[!-~]"
SESSION_ID_FORM = (
    "A session id has 1 to 256 characters: letters, digits, _ and -. It starts with a letter or"
    " digit. From 33 characters, it may have any visible ASCII characters, and spaces between them."
)
ACTOR_ID = "(?=.{1,255}$)[A-Za-z0-9][A-Za-z0-9_/-]*(:[A-Za-z0-9_/-]+)*"
KEY = "[!-~]{1,128}"
KEY_FORM = "An idempotency key has 1 to 128 visible ASCII characters. Send it with a session id."
# Unicode White_Space and U+FEFF; `str.isspace` uses a different set.
BLANK = "[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]*"

# Control characters except tab and line feed: they could move the cursor or retitle the window.
CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f]"
# Invisible letters, marks and symbols that `str.isprintable` accepts.
INVISIBLE = (
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)

ACTOR_FORM = (
    "An actor id has 1 to 255 characters: letters, digits, _ - / and single colons between them."
    " It starts with a letter or digit. For an e-mail address, send its SHA-256."
)
# HTTP status and default message by type.
ERRORS = {
    "invalid_json": (400, "Send one JSON value in UTF-8, nested at most 64 levels deep."),
    "invalid_request": (400, "The request is not valid."),
    "invalid_session_id": (400, SESSION_ID_FORM),
    "actor_required": (400, f"An actor id is required: set the header {ACTOR_HEADERS[0]}."),
    "invalid_actor": (400, ACTOR_FORM),
    "unauthorized": (401, "Send the token in the header `Authorization: Bearer TOKEN`."),
    "session_forbidden": (403, "This session belongs to another actor."),
    "origin_forbidden": (403, "Requests with this Host or Origin header are not allowed."),
    "not_found": (404, "Not found: use POST /invocations or GET /ping."),
    "method_not_allowed": (405, "This path does not support this method."),
    "request_timeout": (408, "The request was not received in time."),
    "session_conflict": (409, "Another process continued this session; this turn was not saved."),
    "not_waiting": (409, "No tool call is waiting for approval."),
    "session_corrupt": (
        409,
        "The stored session was unreadable and has been quarantined; send the prompt again.",
    ),
    "session_foreign": (409, "The agent cannot read this session's format."),
    "payload_too_large": (413, "The body is too large."),
    "session_too_large": (413, "The turn is too large for a session; it was not saved."),
    "prompt_too_long": (413, "The prompt is too long for the model. Send a shorter one."),
    "unsupported_file": (415, "The model does not accept this file."),
    "session_busy": (429, "Too many turns are waiting for this session."),
    "rate_limited": (429, "Too many requests; retry later."),
    "head_too_large": (431, "The request line and headers are larger than 16 KiB."),
    "internal_error": (500, "Internal error; this turn was not saved."),
    "model_failed": (502, "The model failed; this turn was not saved."),
    "empty_reply": (502, "The model sent an empty reply; this turn was not saved."),
    "reply_incomplete": (502, "The model did not finish its reply; this turn was not saved."),
    "guardrail_intervened": (502, "A guardrail blocked this turn; it was not saved."),
    "server_busy": (503, "Too many turns are running; retry later."),
    "draining": (503, "The server is shutting down."),
    "store_unavailable": (503, "The session store failed; retry with the same idempotency key."),
    "turn_timeout": (504, "The turn timed out; it was not saved."),
}

# HTTP statuses and error names of providers that are overloaded or at a rate limit.
BUSY_STATUSES = {"429", "503", "529"}
BUSY_KINDS = {
    "engine_overloaded",
    "insufficient_quota",
    "overloaded",
    "overloaded_error",
    "rate_limit",
    "rate_limit_error",
    "rate_limit_exceeded",
    "resource_exhausted",
    "server_is_overloaded",
    "service_unavailable",
    "service_unavailable_error",
    "slow_down",
    "too_many_requests",
    "unavailable",
}
BUSY = rf"[Tt]hrottl|[Ss]erviceUnavailable|\b({'|'.join(sorted(BUSY_KINDS))})\b"
BUSY_SECONDS = 10  # without a Retry-After header
# Provider SDKs report these statuses for an error in a stream.
SDK_STATUSES = {"500", "502"}


class AgentError(Exception):
    """A failure of a type in ERRORS; `detail` is for the log only.

    `retry_after` is the number of seconds until a retry may succeed, or None.
    """

    def __init__(self, type: str, message: str = "", detail: str = "") -> None:
        self.type = type
        self.detail = detail
        self.status, general = ERRORS[type]
        self.retry_after = 1 if type in {"rate_limited", "server_busy", "draining"} else None
        if type == "model_failed" and is_busy(detail):
            self.retry_after = BUSY_SECONDS
            general = "The model is overloaded or at a limit; this turn was not saved. Retry later."
        self.body = {"error": {"type": type, "message": message or general}}
        super().__init__(message or general)

    def set_retry_after(self, status: int, until: float) -> None:
        """Set `retry_after` from the provider's last "busy" response.

        `until` is the monotonic time of the next try.
        """
        if self.type == "turn_timeout":
            self.detail = self.detail or f"after HTTP {status}"
        elif not self.retry_after:
            return
        self.retry_after = max(1, math.ceil(until - time.monotonic()))


def is_busy(description: str) -> bool:
    """Whether an error, as `describe` formats it, means that the provider is overloaded.

    The HTTP status decides. For an error in a stream, which has no status of its own, the name of
    the error decides.
    """
    status = re.search(r"HTTP ([45]\d\d)", description)
    if status and status[1] not in SDK_STATUSES:
        return status[1] in BUSY_STATUSES or "hrottl" in description
    return re.search(BUSY, description) is not None


@dataclass(frozen=True)
class Change:
    """A request to delete a session, or to copy its first `turns` to the new session `fork`."""

    session_id: str
    actor: str | None
    fork: str = ""
    turns: int = 0
    key: str | None = None  # for idempotency


@dataclass(frozen=True)
class File:
    """A file in a prompt or in a tool's result. In a prompt, its type must fit its content.

    `name` loses its folders and control characters; it may be empty.
    """

    media_type: str
    data: bytes = field(repr=False)
    name: str = ""

    def __post_init__(self) -> None:
        name = re.split(r"[/\\]", well_formed(self.name))[-1]
        object.__setattr__(self, "name", re.sub(f"{CONTROL}|[\t\n]", "", name)[-200:])

    @property
    def label(self) -> str:
        """The name for messages."""
        return self.name or "The file"

    @property
    def is_image(self) -> bool:
        """Whether the file is an image."""
        return self.media_type.startswith("image/")


@dataclass(frozen=True, kw_only=True)
class FileUrl(File):
    """A file of a prompt that the agent fetches when its turn begins.

    `data` is empty, and so is an unknown `media_type`.
    """

    media_type: str = ""
    data: bytes = field(default=b"", init=False, repr=False)
    name: str = ""
    url: str = field(repr=False)  # may contain a signature


@dataclass(frozen=True)
class ToolCall:
    """The start of a tool call."""

    id: str
    name: str
    input: Json


@dataclass(frozen=True)
class ToolResult:
    """The result of the tool call with this id.

    `value` is a returned object or list, and `files` has returned images and documents.
    """

    id: str
    text: str
    is_error: bool
    value: Json = None
    files: Sequence[File] = field(default=(), repr=False)


@dataclass(frozen=True)
class Data:
    """A copy of a value for the caller, such as a tool's progress; no session stores it.

    Raises ValueError unless the name has 1 to 64 letters, digits, `_` and `-`, and the value is
    JSON.
    """

    name: str
    value: Json

    def __post_init__(self) -> None:
        if not re.fullmatch("[A-Za-z0-9_-]{1,64}", self.name):
            raise ValueError("A Data name must have 1 to 64 characters: A-Z, a-z, 0-9, _ or -.")
        try:
            copy = json.loads(json.dumps(self.value, allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            raise ValueError("The value of Data must be JSON.") from None
        object.__setattr__(self, "value", copy)


@dataclass(frozen=True)
class Source:
    """A page on which the reply is based; no session stores it."""

    url: str
    title: str = ""


@dataclass(frozen=True)
class Reasoning:
    """A part of the model's reasoning; it does not belong to the reply."""

    text: str


# The types of a turn's output. Your own code can emit chunks, too.
StoredChunk = str | ToolCall | ToolResult
Chunk = StoredChunk | Reasoning | Data | Source
Emit = Callable[[Chunk], Awaitable[None]]


async def discard(chunk: Chunk) -> None:
    """Ignore a chunk."""


@dataclass(frozen=True)
class TurnRequest:
    """A request for a turn. Raises AgentError for an invalid id or key."""

    session_id: str
    prompt: str = field(repr=False)
    _: KW_ONLY
    actor: str | None = None
    key: str | None = None  # for idempotency
    replaces: int | None = None  # the number of the first turn to drop; 0: the last turn
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # of the HTTP request
    files: Sequence[File] = field(default=(), repr=False)  # for the model, with the prompt
    output: "type[BaseModel] | None" = None  # the reply is a value of this model

    def __post_init__(self) -> None:
        if not re.fullmatch(SESSION_ID, self.session_id):
            raise AgentError("invalid_session_id")
        if self.actor is not None and not re.fullmatch(ACTOR_ID, self.actor):
            raise AgentError("invalid_actor")
        if self.key is not None and not re.fullmatch(KEY, self.key):
            raise AgentError("invalid_request", KEY_FORM)

    @property
    def needs_prompt(self) -> bool:
        """Whether a blank prompt is an error; without a prompt, the replaced turn runs again."""
        return self.replaces is None or self.prompt != ""


@dataclass(frozen=True)
class Usage:
    """The number of tokens that a turn used; 0 means unknown."""

    input_tokens: int = 0
    cached_tokens: int = 0  # of `input_tokens`, read from the provider's cache
    output_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
        )


class Marks(TypedDict, total=False):
    """What happened before this turn."""

    restarted: bool  # the store has lost all earlier turns
    rolled_back: bool  # the store has lost the latest turns
    dropped: bool  # a pending approval was dropped


@dataclass(frozen=True)
class TurnResult:
    """The result of a turn; `outcome` is "committed", "replayed" or "waiting"."""

    session_id: str
    turn: int
    reply: str = field(repr=False)
    outcome: str
    output: "BaseModel | None" = field(default=None, repr=False)
    usage: Usage = Usage()
    model: str = ""  # as in Turn
    waiting: Sequence[ToolCall] = ()  # pending approvals
    marks: Marks = field(default_factory=Marks)


@dataclass(eq=False)
class Turn:
    """A running turn: its request, its output and the facts for its log line.

    The facts are also set for a failed turn.
    """

    request: TurnRequest  # its files have their data when the model is called
    send: Emit = field(default=discard, repr=False)
    prompt: str = field(init=False, repr=False)  # the request's, or the repeated turn's
    key: str | None = field(init=False, repr=False)  # as above
    stopped: Event = field(default_factory=Event, repr=False)  # set when the turn ends, for threads
    recalled: list[str] = field(default_factory=list, repr=False)  # memories in the request
    kept: dict[str, Json] = field(default_factory=dict, repr=False)  # for the resumed turn
    waiting: list[ToolCall] = field(default_factory=list, repr=False)  # pending approvals
    texts: list[str] = field(default_factory=list, repr=False)  # of the reply so far
    output: "BaseModel | None" = field(default=None, repr=False)
    has_begun: bool = False  # passed limits, queue and owner check, and loaded the session
    number: int = 0
    outcome: str = "running"  # then committed, replayed, waiting, cancelled, or a type in ERRORS
    detail: str = ""  # for the log only
    # The id of the last model that answered; "offline" without MODEL. A capability that chooses
    # another model sets it.
    model: str = ""
    usage: Usage = Usage()
    charged: Usage = Usage()  # the part of `usage` that tools added
    milliseconds: int = 0
    _refusal: tuple[int, float] | None = field(default=None, repr=False)
    _blank_reasoning: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        self.prompt = self.request.prompt
        self.key = self.request.key

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self.request.session_id

    @property
    def actor(self) -> str | None:
        """The actor for whom the turn runs."""
        return self.request.actor

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the HTTP request."""
        return self.request.headers

    @property
    def reply(self) -> str:
        """The text of all steps so far."""
        return "".join(self.texts)

    async def emit(self, chunk: Chunk) -> None:
        """Send a chunk to the caller; drop it if the turn has ended.

        Raises AgentError `internal_error` if the caller's function fails.
        """
        if not isinstance(chunk, Reasoning):
            self._blank_reasoning = ""
        if self.stopped.is_set():
            return
        try:
            await self.send(chunk)
        except Exception as error:
            detail = f"emit failed: {type(error).__name__}"
            raise AgentError("internal_error", detail=detail) from error

    async def say(self, text: str) -> None:
        """Append text to the reply and send it."""
        self.texts.append(well_formed(text))
        await self.emit(self.texts[-1])

    async def reason(self, text: str) -> None:
        """Send a part of the model's reasoning; hold white space back until a word follows."""
        self._blank_reasoning += well_formed(text)
        if not is_blank(self._blank_reasoning):
            text = self._blank_reasoning
            self._blank_reasoning = ""
            await self.emit(Reasoning(text))

    def charge(self, *, input_tokens: int = 0, output_tokens: int = 0) -> None:
        """Count the tokens of a tool's model calls as usage of the turn, and against token limits.

        Raises ValueError for a negative or fractional number.
        """
        if any(type(count) is not int or count < 0 for count in (input_tokens, output_tokens)):
            raise ValueError("Charge a whole number of tokens, at least 0.")
        tokens = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        self.usage += tokens
        self.charged += tokens

    def end(self, outcome: str, marks: Marks | None = None) -> TurnResult:
        """Set the outcome of a successful turn and return its result."""
        self.outcome = outcome
        return TurnResult(
            session_id=self.session_id,
            turn=self.number,
            reply=self.reply,
            outcome=outcome,
            output=self.output,
            usage=self.usage,
            model=self.model,
            waiting=[*self.waiting],
            marks=marks or Marks(),
        )

    def replay(self, number: int, reply: str, marks: Marks | None = None) -> TurnResult:
        """Return the result of an earlier turn."""
        self.number = number
        self.texts = [reply]
        if self.request.output and not self.waiting:
            with suppress(ValueError):  # the turn did not ask for a value
                self.output = self.request.output.model_validate_json(reply)
        return self.end("replayed", marks)

    def note_answer(self, status: int, retry_after: str) -> None:
        """Record how long the provider is busy.

        `retry_after` is the value of the Retry-After header.
        """
        self._refusal = None
        if str(status) in BUSY_STATUSES:
            is_known = re.fullmatch("[0-9]{1,6}", retry_after)
            seconds = int(retry_after) if is_known else BUSY_SECONDS
            self._refusal = (status, time.monotonic() + seconds)

    def fail(self, error: BaseException) -> None:
        """Record the error that ended the turn, or its cancellation."""
        if isinstance(error, AgentError):
            if self._refusal:
                error.set_retry_after(*self._refusal)
            self.outcome = error.type
            self.detail = error.detail
        elif not isinstance(error, asyncio.CancelledError):
            self.outcome = "internal_error"
        elif error.args == DRAINING:
            self.outcome = "draining"
        else:
            self.outcome = "cancelled"


DRAINING = ("draining",)  # a shutdown cancels turns with this message
RUNNING: ContextVar[Turn] = ContextVar("RUNNING")


def current_turn() -> Turn:
    """Return the running turn. Raises LookupError outside a turn."""
    if turn := RUNNING.get(None):
        return turn
    raise LookupError("current_turn() was called outside a turn: call it in a tool.")


def is_blank(text: str) -> bool:
    """Whether a string consists only of Unicode white space and U+FEFF."""
    return re.fullmatch(BLANK, text) is not None


def well_formed(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def value_of(text: str) -> Json:
    """Parse a JSON object or array; return None for any other string."""
    if not re.match(r"\s*[{\[]", text):
        return None
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def refuse_options(options: Iterable[str], alternatives: Mapping[str, str]) -> None:
    """Raise AgentError if a capability's `prepare` has set an unsupported option."""
    for name in sorted(alternatives.keys() & options):
        detail = f"`prepare` cannot set the option {name}: {alternatives[name]}."
        raise AgentError("internal_error", detail=detail)


def well_formed_value(value: Any) -> Any:
    """Return a JSON value with well-formed strings; return other types unchanged."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [well_formed_value(item) for item in value]
    if isinstance(value, dict):
        return {well_formed_value(key): well_formed_value(item) for key, item in value.items()}
    return value


def escape_invisible(text: str) -> str:
    """Return JSON text with escapes for invisible and reordering characters.

    These are control and format characters (such as U+202E), all spaces except U+0020, and letters
    and marks that are not visible. The JSON value stays the same.
    """
    return "".join(map(_escape_invisible, text))


def _escape_invisible(character: str) -> str:
    if character.isprintable() and not re.match(INVISIBLE, character):
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return re.sub("(....)", r"\\u\1", units)


def check_prompt(value: object, max_chars: int) -> str:
    """Return a prompt of at most `max_chars` code points, or raise `invalid_request`."""
    if not isinstance(value, str) or is_blank(value) or len(value) > max_chars:
        message = f"Send a prompt that is not blank and has at most {max_chars} characters."
        raise AgentError("invalid_request", message)
    if re.search("[\ud800-\udfff]", value):
        message = "The prompt contains a lone surrogate: send well-formed Unicode."
        raise AgentError("invalid_request", message)
    return value
