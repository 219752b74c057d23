"""The middleware that runs turns without their clients, and records their events."""

import asyncio
import re
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..contract import NO_SNIFF, SESSION_HEADER, AgentError, Turn
from ..http.multipart import is_form
from ..http.requests import find_actor, parse_body
from ..log import log_unexpected
from .failures import Format, format_error, format_part
from .readers import EventStream, add_turn_id
from .recordings import BackgroundTurn, Recordings

CONTROL_PATH = "/invocations/events"  # of `follow` and `stop`: these requests run no turn
MODES = ("background", "follow", "stop")
MAX_CONTROL_BYTES = 4096  # of the body of `follow` and `stop`
ACCEPT_SECONDS = 1  # of a wait for the session, until the turn is accepted
PUBLISH_SECONDS = 1  # for the response to wait until other replicas know the turn
DETACHED: ContextVar["Detached | None"] = ContextVar("DETACHED", default=None)


class _BackgroundRequest(Exception):
    """The body of a request asks for a background turn."""


class _ControlRequest(Exception):
    """The body of a request is for the route of `follow` and `stop`."""


class Detached:
    """A request whose response is recorded, and that continues after its client has left.

    Until its body is complete, it is a request like any other.
    """

    def __init__(self, recordings: Recordings, format: Format) -> None:
        self.turn: BackgroundTurn | None = None  # set when the body is complete
        self.core_turn: Turn | None = None
        self.head: Message | None = None
        self.responded = asyncio.Event()  # the head of the response is known
        self.accepted = asyncio.Event()  # the turn was accepted
        self._format = format
        self._recordings = recordings
        self._body = b""
        self._rest = b""  # the start of an incomplete event
        self._task: asyncio.Task[None]

    @property
    def is_stream(self) -> bool:
        """Whether the response consists of events."""
        if self.head is None or self.head["status"] != 200:
            return False
        return Headers(raw=self.head["headers"]).get("content-type", "").startswith("text/event-")

    def start(self, app: ASGIApp, scope: Scope, receive: Receive) -> None:
        """Pass the request to the app in a task of its own."""

        async def receive_body() -> Message:
            if self.turn:
                await self.turn.stopping.wait()
                return {"type": "http.disconnect"}
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                self.turn = self._recordings.start(_actor_of(scope), self._format)
            return message

        # From version 2.4, Starlette also sends the last events of a cancelled turn.
        asgi = {**scope.get("asgi", {}), "spec_version": "2.4"}
        own = {**scope, "asgi": asgi, "state": {**scope.get("state", {})}}
        self._task = asyncio.create_task(self._run(app, own, receive_body))

    def begin(self, turn: Turn) -> None:
        """Handle the start of the turn, which may still wait for its session."""
        if self.turn and self.core_turn is None:
            self.core_turn = turn
            self.turn.key = (turn.session_id, turn.actor)
            asyncio.get_running_loop().call_later(ACCEPT_SECONDS, self.accept)

    def accept(self) -> None:
        """Let clients follow the turn."""
        turn = self.turn
        if turn and turn.key and turn in self._recordings.running and not self.accepted.is_set():
            self._recordings.add(turn.key, turn)
            self.accepted.set()

    async def wait(self, event: asyncio.Event) -> None:
        """Wait for `event` or the end of the request. Raises the error of the request."""
        waiting = asyncio.create_task(event.wait())
        await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done() and not event.is_set():
            self._task.result()

    async def relay(self, send: Send) -> None:
        """Send the response to a rejected request. Raises AgentError `turn_stopped`."""
        await asyncio.wait({self._task})
        if self._is_cancelled:
            raise AgentError("turn_stopped")
        if self.head:
            await send(self.head)
            await send({"type": "http.response.body", "body": self._body})

    async def _run(self, app: ASGIApp, scope: Scope, receive: Receive) -> None:
        DETACHED.set(self)
        try:
            await app(scope, receive, self._record)
        except Exception as error:
            if not self.turn or not self.accepted.is_set():
                raise
            log_unexpected(error)
            self.turn.recording.append(format_error(self._format, AgentError("internal_error")))
        finally:
            if self.turn:
                self._recordings.end(self.turn)

    async def _record(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.head = message
            self.responded.set()
            return
        data = message.get("body", b"")
        is_last = not message.get("more_body")
        if not self.turn or not self.is_stream:
            self._body += data
            if self.turn and is_last and self.accepted.is_set():  # it failed before its first text
                self._append(self.turn, b"event: error\ndata: " + self._body + b"\n\n")
            return
        *events, self._rest = (self._rest + data).split(b"\n\n")
        self._append(self.turn, *(it + b"\n\n" for it in events if not it.startswith(b":")))
        has_event = self.turn.recording.last > 0 and self._format == "events"
        if has_event or (is_last and not self._is_refused):
            self.accept()

    def _append(self, turn: BackgroundTurn, *events: bytes) -> None:
        """Record events. The error of a cancelled turn is `turn_stopped`."""
        turn.recording.append(*map(self._as_stopped, events) if self._is_cancelled else events)

    def _as_stopped(self, event: bytes) -> bytes:
        if event.startswith(b"event: error\n"):
            return format_error(self._format, AgentError("turn_stopped"))
        if event.startswith(b'data: {"type":"error"'):
            return format_part(AgentError("turn_stopped"))
        return event

    @property
    def _is_refused(self) -> bool:
        """Whether the turn ended before it began, for example in another actor's session."""
        turn = self.core_turn
        return turn is None or not (turn.has_begun or turn.outcome == "replayed")

    @property
    def _is_cancelled(self) -> bool:
        """Whether a client stopped the turn before its commit."""
        return self.core_turn is not None and self.core_turn.outcome == "cancelled"


class Detaching:
    """The middleware. It records the responses of the paths in `formats`."""

    def __init__(self, app: ASGIApp, recordings: Recordings, formats: dict[str, Format]) -> None:
        self._app = app
        self._recordings = recordings
        self._formats = formats
        self._settings = recordings.settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        format = self._formats.get(scope.get("path", ""))
        if scope["type"] != "http" or scope["method"] != "POST" or format is None:
            await self._app(scope, receive, send)
        elif format == "chat":
            await self._chat(scope, receive, send)
        else:
            await self._invoke(scope, receive, send)

    async def _chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a turn of useChat, and serve its client like any other reader."""
        detached = Detached(self._recordings, "chat")
        detached.start(self._app, scope, receive)
        await detached.wait(detached.responded)
        if not detached.is_stream or not detached.turn or not detached.head:
            return await detached.relay(send)
        seconds = self._settings.keep_alive_seconds
        stream = EventStream(detached.turn.recording, 0, seconds, is_numbered=False)
        stream.raw_headers = [*detached.head["headers"]]
        add_turn_id(stream, detached.turn.recording)
        await stream(scope, receive, send)

    async def _invoke(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a turn; pass `follow` and `stop` to their route.

        The app reads large bodies, because it first checks the token and MAX_TURNS.
        """
        headers = Headers(scope=scope)
        content_type = ", ".join(headers.getlist("content-type"))
        length = headers.get("content-length", "")
        if re.fullmatch("[0-9]{1,4}", length) and int(length) <= MAX_CONTROL_BYTES:
            content = await Request(scope, receive).body()
            receive = _replayed(content, receive)
            fields = self._find_fields(content, content_type)
            if fields.get("follow") is True or fields.get("stop") is True:  # even if MAX_TURNS run
                return await self._app(_to_control(scope), receive, send)
        body = bytearray()

        async def receive_body() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            if message["type"] == "http.request" and not message.get("more_body"):
                _find_request(self._find_fields(bytes(body), content_type))
                body.clear()  # a turn may last for minutes
            return message

        try:
            await self._app(scope, receive_body, send)
        except _ControlRequest:
            await self._app(_to_control(scope), _replayed(bytes(body), receive), send)
        except _BackgroundRequest:
            await self._run(scope, _replayed(bytes(body), receive), send)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a background turn; respond when it is accepted or rejected."""
        headers = [pair for pair in scope["headers"] if pair[0] != b"accept"]
        headers.append((b"accept", b"text/event-stream"))
        detached = Detached(self._recordings, "events")
        detached.start(self._app, {**scope, "headers": headers}, receive)
        await detached.wait(detached.accepted)
        turn = detached.turn
        if not detached.accepted.is_set() or not turn or not turn.key:
            return await detached.relay(send)
        with suppress(TimeoutError):
            async with asyncio.timeout(PUBLISH_SECONDS):
                await turn.published.wait()
        session_id, _ = turn.key
        body = {"session_id": session_id, "turn_id": turn.recording.turn_id}
        response = JSONResponse(body, 202, {**NO_SNIFF, SESSION_HEADER: session_id})
        await response(scope, receive, send)

    def _find_fields(self, body: bytes, content_type: str) -> dict[str, Any]:
        """Return the fields of a body that has one of MODES, or {}."""
        quote = "" if is_form(content_type) else '"'
        if not any(f"{quote}{name}{quote}".encode() in body for name in MODES):
            return {}
        try:
            fields = parse_body(body, content_type, self._settings)
        except AgentError:  # the app raises it again
            return {}
        return fields if isinstance(fields, dict) else {}


def _find_request(fields: dict[str, Any]) -> None:
    """Raise _ControlRequest or _BackgroundRequest; AgentError if a field is not a boolean."""
    for name in MODES:
        if not isinstance(fields.get(name, False), bool):
            raise AgentError("invalid_request", f"Send {name} as true or false.")
    if fields.get("follow") or fields.get("stop"):
        raise _ControlRequest
    if fields.get("background"):
        raise _BackgroundRequest


def _to_control(scope: Scope) -> Scope:
    """Return the scope of a request for the route of `follow` and `stop`."""
    return {**scope, "path": CONTROL_PATH, "raw_path": CONTROL_PATH.encode()}


def _actor_of(scope: Scope) -> str | None:
    """Return the actor in the headers; None if it is invalid, because the app rejects it."""
    try:
        return find_actor(Request(scope))
    except AgentError:
        return None


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that starts with a body that has already been received."""
    is_sent = False

    async def receive_again() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
