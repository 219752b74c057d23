"""Validates requests in the order that the HTTP contract specifies."""

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from secrets import compare_digest
from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.types import Message

from .. import contract
from ..contract import AgentError, Change, TurnRequest
from ..files import read_files
from ..runtime import Runtime
from ..settings import CoreSettings
from .multipart import FORM_TYPE, is_form, label, read_form

log = logging.getLogger(__name__)
LOOPBACK_ADDRESS = r"(https?://)?(localhost|127(\.\d+){3}|\[::1\])(:\d+)?"
IP_ADDRESS = r"(\d+(\.\d+){3}|\[[\da-f:.]+\])(:\d+)?"
EXCLUDES = r";\s*q\s*=\s*0(\.0*)?\s*(;|$)"  # in a media range of Accept
MAX_LEVELS = 64  # of nesting in JSON
TO_SQUARE = bytes.maketrans(b"{}", b"[]")
NO_BRACKETS = bytes({*range(256)} - {*b"[]{}"})


def read_header(request: Request, *names: str) -> str | None:
    """Return the value of the first of these headers that the request has, or None."""
    headers = [request.headers.getlist(name) for name in names]
    return next((", ".join(values) for values in headers if values), None)


def check_access(
    request: Request,
    runtime: Runtime,
    *,
    needs_token: bool = True,
    types: Sequence[str] = ("application/json",),
) -> None:
    """Check Host, Origin, Content-Type and token. Raises AgentError."""
    _refuse_foreign(request, runtime, is_public=not needs_token)
    _refuse_type(request, types)
    if needs_token:
        _authorize(request, runtime)


def _refuse_foreign(request: Request, runtime: Runtime, *, is_public: bool) -> None:
    """Check Host and Origin. Raises AgentError."""
    settings = runtime.settings
    get = request.headers.getlist
    # Health checks that proxies send over HTTP/1.0 have no Host header.
    is_check = (request.scope["path"], request.scope.get("http_version")) == ("/ping", "1.0")
    if len(get("host")) != 1 and not (is_check and not get("host")):
        raise AgentError("invalid_request", "Send one Host header.")
    hosts = get("host") if settings.is_loopback or settings.allowed_hosts else []
    for host in hosts:
        if not _is_allowed(host, settings.allowed_hosts):
            raise _forbidden("ALLOWED_HOSTS", "Host", host)
    is_read = request.method in {"GET", "HEAD"} and request.scope["path"] != "/ping"
    if is_read and not hosts and not settings.api_token:
        # Same-origin GETs have no Origin, and DNS rebinding can resolve another site's name to us.
        host = get("host")[0]
        if not _is_allowed(host, "") and not re.fullmatch(IP_ADDRESS, host.lower()):
            raise _forbidden("ALLOWED_HOSTS", "Host", host)
    # Browsers also send an Origin for a page's module scripts.
    origins = [] if is_public and is_read else get("origin")
    for origin in origins:
        if not _is_allowed(origin, settings.allowed_origins):
            raise _forbidden("ALLOWED_ORIGINS", "Origin", origin)


def _refuse_type(request: Request, types: Sequence[str]) -> None:
    """Check the Content-Type of a request from a web page. Raises AgentError."""
    get = request.headers.getlist
    is_from_page = get("origin") or not _is_same_site(request)
    sent = [value.split(";")[0].strip().lower() for value in get("content-type")]
    is_typed = sent or request.method != "POST"  # browsers send untyped POSTs without preflight
    if is_from_page and not (is_typed and {*sent} <= {*types}):
        what = f"A request from a web page needs Content-Type: {' or '.join(types)}."
        raise AgentError("invalid_request", what)


def _is_same_site(request: Request) -> bool:
    """Whether a request without an Origin is not from a page of another site."""
    return request.headers.get("sec-fetch-site", "none") in {"same-origin", "none"}


def _types_of(request: Request, settings: CoreSettings) -> list[str]:
    """Return the types that a page may send to POST /invocations.

    Browsers send forms to any server without a preflight request. So only the agent's own pages
    and those in ALLOWED_ORIGINS may send them.
    """
    host = request.headers.get("host", "").lower()
    trusted = {f"http://{host}", f"https://{host}", *split_list(settings.allowed_origins)}
    origins = {origin.lower() for origin in request.headers.getlist("origin")}
    is_trusted = origins <= trusted and (origins or _is_same_site(request))
    return ["application/json", FORM_TYPE] if is_trusted else ["application/json"]


def _forbidden(setting: str, header: str, value: str) -> AgentError:
    """Log a rejected request and return its error."""
    what = f'{setting} does not list the {header} "{value[:255]}".'
    log.warning("origin_forbidden: %s", what)
    return AgentError("origin_forbidden", what)


def split_list(text: str) -> list[str]:
    """Return the items of a comma-separated list, in lower case."""
    return re.findall("[^, ]+", text.lower())


def _is_allowed(value: str, listed: str) -> bool:
    names = {value.lower(), re.sub(r"^([^/]+):\d+$", r"\1", value.lower())}  # any port
    is_listed = not names.isdisjoint(split_list(listed))
    return is_listed or re.fullmatch(LOOPBACK_ADDRESS, value, re.IGNORECASE) is not None


def _authorize(request: Request, runtime: Runtime) -> None:
    """Check the API_TOKEN, if it is set. Raises AgentError `unauthorized`."""
    # Behind a proxy with basic authentication, Authorization has the proxy's credentials.
    token = read_header(request, contract.TOKEN_HEADER)
    sent = read_header(request, "authorization") if token is None else f"Bearer {token}"
    credentials = re.sub("^(?i:bearer) ", "Bearer ", sent or "")
    expected = f"Bearer {runtime.settings.api_token}"
    if runtime.settings.api_token and not compare_digest(credentials.encode(), expected.encode()):
        raise AgentError("unauthorized")


def wants_events(request: Request) -> bool:
    """Whether to stream: Accept contains text/event-stream or lacks application/json.

    A media range with `q=0` excludes its type (RFC 9110, section 12.4.2).
    """
    ranges = ",".join(request.headers.getlist("accept")).lower().split(",")
    types = {media_range.split(";")[0].strip() for media_range in ranges}
    excluded = {it.split(";")[0].strip() for it in ranges if re.search(EXCLUDES, it)}
    if "text/event-stream" in types:
        return "text/event-stream" not in excluded
    return "text/*" not in excluded and "application/json" not in types - excluded


async def read_call(request: Request, runtime: Runtime) -> TurnRequest | Change:
    """Read and validate a POST /invocations. Raises AgentError for the first failed check.

    Sets `request.state.session_id`: every response, even an error, sends it in a header.
    """
    sent_id = read_header(request, contract.SESSION_HEADER)
    is_new = sent_id is None
    session_id = str(uuid4()) if sent_id is None else sent_id
    if len(request.headers.getlist(contract.SESSION_HEADER)) > 1:
        session_id = ""
    request.state.session_id = session_id
    check_access(request, runtime, types=_types_of(request, runtime.settings))
    with runtime.turns.reading():
        raw = await bounded(request, runtime.settings.max_body_bytes).body()
    if not re.fullmatch(contract.SESSION_ID, session_id):
        raise AgentError("invalid_session_id")
    content_type = read_header(request, "content-type") or ""
    body = parse_body(raw, content_type, runtime.settings)
    call = _read_body(body, session_id, runtime)
    if is_new and isinstance(call, Change):
        raise AgentError("invalid_request", "Send the session id in the session header.")
    actor = read_actor(request, runtime)
    key = read_header(request, *contract.KEY_HEADERS)
    if key is not None and (is_new or not re.fullmatch(contract.KEY, key)):
        raise AgentError("invalid_request", contract.KEY_FORM)
    if isinstance(call, Change):
        return replace(call, actor=actor, key=key)
    return replace(call, actor=actor, key=key, headers=request.headers)


def read_actor(request: Request, runtime: Runtime) -> str | None:
    """Return the actor in the headers. Raises `invalid_actor` or `actor_required`."""
    actor = find_actor(request)
    if actor is None and runtime.actor_required:
        raise AgentError("actor_required")
    return actor


def find_actor(request: Request) -> str | None:
    """Return the actor in the headers, or None. Raises `invalid_actor`."""
    actor = read_header(request, *contract.ACTOR_HEADERS)
    if actor is not None and not re.fullmatch(contract.ACTOR_ID, actor):
        raise AgentError("invalid_actor")
    return actor


def bounded(request: Request, max_bytes: int) -> Request:
    """Return the request with a body limit. Reading more raises `payload_too_large`."""
    size = 0

    async def receive() -> Message:
        nonlocal size
        message = await request.receive()
        size += len(message.get("body", b""))
        if size <= max_bytes:
            return message
        # Most clients read the response only after they have sent the body.
        while message.get("more_body") and size <= 16 * max_bytes + 2**24:
            message = await request.receive()
            size += len(message.get("body", b""))
        if message["type"] == "http.disconnect":
            return message
        raise AgentError("payload_too_large", f"The body is larger than {max_bytes} bytes.")

    return _JSONRequest(request.scope, receive)


class _JSONRequest(Request):
    """A request whose `json` raises `invalid_json` for a body that is not JSON."""

    async def json(self) -> Any:
        try:
            return await super().json()
        except (ValueError, RecursionError):
            raise AgentError("invalid_json") from None


def parse_json(body: bytes) -> Any:
    """Parse JSON (RFC 8259) with at most 64 levels of nesting. Raises `invalid_json`."""
    try:
        text = body.decode()
        outside_strings = re.sub(rb'"(?:[^"\\]++|\\.)*+"?', b"", body, flags=re.DOTALL)
        brackets = outside_strings.translate(TO_SQUARE, NO_BRACKETS)
        for _ in range(MAX_LEVELS):
            if b"[]" not in brackets:
                break
            brackets = brackets.replace(b"[]", b"")  # the innermost level
        if brackets:
            raise ValueError("nested too deeply, or brackets without a pair")
        # int() rejects NaN and Infinity, which JSON does not allow; float() accepts long numbers.
        return json.loads(text, parse_constant=int, parse_int=float)
    except ValueError:
        raise AgentError("invalid_json") from None


def parse_body(raw: bytes, content_type: str, settings: CoreSettings) -> Any:
    """Return the value of JSON, or a form as its fields, with `File`s. Raises AgentError."""
    if not is_form(content_type):
        return parse_json(raw)
    fields, files = read_form(raw, content_type, settings)
    body = {name: _read_field(name, value) for name, value in fields.items()}
    return body | {"files": files} if files else body


def _read_field(name: str, value: bytes) -> Any:
    """Return the value of a form's field: `prompt` is text, and others are JSON."""
    try:
        return value.decode() if name == "prompt" else parse_json(value)
    except (AgentError, UnicodeDecodeError):
        kind = "UTF-8" if name == "prompt" else "JSON"
        message = f"The value of the field {label(name)} is not {kind}."
        raise AgentError("invalid_request", message) from None


def _read_body(body: Any, session_id: str, runtime: Runtime) -> TurnRequest | Change:
    """Parse a body; the calling function adds the values of the headers."""
    if not isinstance(body, dict):
        raise AgentError("invalid_request", "The body must be an object.")
    turn = runtime.read_request(body, session_id)
    fork = body.get("fork")
    is_turn = turn is not None or not body.keys().isdisjoint({"prompt", "replace_turn"})
    if "at_turn" in body and fork is None:
        raise AgentError("invalid_request", "Send at_turn only with fork.")
    if body.get("end_session") is True and not is_turn and fork is None:
        return Change(session_id, None)
    if body.get("end_session", False) is not False:
        raise AgentError("invalid_request", "Send end_session as true, in a separate request.")
    if isinstance(fork, str) and re.fullmatch(contract.SESSION_ID, fork) and not is_turn:
        return Change(session_id, None, fork, _read_number(body, "at_turn"))
    if fork is not None:
        raise AgentError("invalid_request", "Send fork as a session id, in a separate request.")
    if turn:
        return turn
    replaces = _read_number(body, "replace_turn") if "replace_turn" in body else None
    is_repeat = replaces and "prompt" not in body
    max_chars = runtime.settings.max_prompt_chars
    prompt = "" if is_repeat else contract.check_prompt(body.get("prompt"), max_chars)
    files = read_files(body.get("files", []), runtime.settings)
    return TurnRequest(session_id, prompt, replaces=replaces, files=files)


def _read_number(body: dict[str, Any], name: str) -> int:
    number = body.get(name)
    if not isinstance(number, float) or not number.is_integer() or not 1 <= number < 2**53:
        raise AgentError("invalid_request", f"Send {name} as a turn number, 1 or higher.")
    return int(number)
