"""The middleware that runs turns without their clients, and records their events."""

import asyncio
import re
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..contract import NO_SNIFF, SESSION_HEADER, SESSION_ID, AgentError, Turn
from ..http.requests import bounded, check_access, find_actor, parse_json, read_actor, read_header
from ..log import log_unexpected
from ..runtime import Runtime
from .readers import EventStream, follow, stop
from .recordings import BackgroundTurn, Format, Recordings, format_error

FIELDS = ("background", "follow", "stop")
OTHERS = {"prompt", "replace_turn", "fork", "end_session"}
MAX_CONTROL_BYTES = 4096  # of a body that is read even if MAX_TURNS turns run
ACCEPT_SECONDS = 1  # of a wait for the session, until the turn is accepted
RUNNING: ContextVar["Detached | None"] = ContextVar("RUNNING", default=None)


class Detached:
    """A request whose response is recorded, and that continues after its client has left."""

    def __init__(self, turn: BackgroundTurn, recordings: Recordings) -> None:
        self.turn = turn
        self.core_turn: Turn | None = None
        self.head: Message | None = None
        self.body = b""
        self.responded = asyncio.Event()  # the head of the response is known
        self.task: asyncio.Task[None]
        self._recordings = recordings
        self._rest = b""  # the start of an incomplete event
        self._has_body = False

    @property
    def is_stream(self) -> bool:
        """Whether the response consists of events."""
        if self.head is None or self.head["status"] != 200:
            return False
        return Headers(raw=self.head["headers"]).get("content-type", "").startswith("text/event-")

    def start(self, app: ASGIApp, scope: Scope, receive: Receive) -> None:
        """Pass the request to the app in a task of its own."""

        async def receive_body() -> Message:
            if self._has_body:
                await self.turn.stopping.wait()
                return {"type": "http.disconnect"}
            message = await receive()
            self._has_body = not message.get("more_body")
            return message

        # With version 2.4, Starlette also sends the last events of a cancelled turn.
        asgi = {**scope["asgi"], "spec_version": "2.4"}
        own = {**scope, "asgi": asgi, "state": {**scope.get("state", {})}}
        self.task = asyncio.create_task(self._run(app, own, receive_body))

    def begin(self, turn: Turn) -> None:
        """Handle the start of the turn, which may still wait for its session."""
        if self.core_turn is None:
            self.core_turn = turn
            self.turn.key = (turn.session_id, turn.actor)
            asyncio.get_running_loop().call_later(ACCEPT_SECONDS, self._accept)

    async def wait(self, event: asyncio.Event) -> None:
        """Wait for `event` or the end of the request. Raises its error."""
        waiting = asyncio.create_task(event.wait())
        await asyncio.wait({waiting, self.task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self.task.done() and not event.is_set():
            self.task.result()

    async def relay(self, send: Send) -> None:
        """Send the response to a rejected request. Raises AgentError `turn_stopped`."""
        await asyncio.wait({self.task})
        if self.turn.stopping.is_set():
            raise AgentError("turn_stopped")
        assert self.head
        await send(self.head)
        await send({"type": "http.response.body", "body": self.body})

    def _accept(self) -> None:
        if self.turn in self._recordings.running:
            self.turn.accept()

    async def _run(self, app: ASGIApp, scope: Scope, receive: Receive) -> None:
        RUNNING.set(self)
        try:
            await app(scope, receive, self._record)
        except Exception as error:
            if not self.turn.accepted.is_set():
                raise
            log_unexpected(error)
            failure = AgentError("internal_error")
            self.turn.append(format_error(self.turn.recording.format, failure))
        finally:
            self._recordings.end(self.turn)

    async def _record(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.head = message
            self.responded.set()
        elif message["type"] == "http.response.body":
            self._add(message.get("body", b""), is_last=not message.get("more_body"))

    def _add(self, data: bytes, *, is_last: bool) -> None:
        turn = self.turn
        if not self.is_stream:
            self.body += data
            if is_last and turn.accepted.is_set():  # the turn failed before its first text
                turn.append(b"event: error\ndata: " + self.body + b"\n\n")
            return
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            if not event.startswith(b":"):  # a comment
                turn.append(event + b"\n\n")
                if turn.recording.format == "events":
                    turn.accept()
        if is_last:
            turn.accept()


class Detaching:
    """The middleware. It records the responses of the paths in `formats`."""

    def __init__(self, app: ASGIApp, recordings: Recordings, formats: dict[str, Format]) -> None:
        self.runtime: Runtime | None = None  # set when the capability opens
        self._app = app
        self._recordings = recordings
        self._formats = formats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        format = self._formats.get(scope.get("path", ""))
        if scope["type"] != "http" or scope["method"] != "POST" or format is None:
            return await self._app(scope, receive, send)
        assert self.runtime
        request = Request(scope, receive)
        try:
            check_access(request, self.runtime)
            actor = find_actor(request)
        except AgentError:
            return await self._app(scope, receive, send)  # which raises the same error
        if format == "chat":
            await self._chat(scope, receive, send, actor)
        else:
            await self._invoke(request, self.runtime, send)

    async def _chat(self, scope: Scope, receive: Receive, send: Send, actor: str | None) -> None:
        """Run a turn of useChat, and serve its client like any other reader."""
        detached = self._start(scope, receive, actor, "chat")
        await detached.wait(detached.responded)
        if not detached.is_stream:
            return await detached.relay(send)
        assert detached.head and self.runtime
        seconds = self.runtime.settings.keep_alive_seconds
        stream = EventStream(detached.turn.recording, 0, seconds, is_numbered=False)
        stream.raw_headers = detached.head["headers"]
        await stream(scope, receive, send)

    async def _invoke(self, request: Request, runtime: Runtime, send: Send) -> None:
        scope = request.scope
        sent_id = read_header(request, SESSION_HEADER)
        session_id = str(uuid4()) if sent_id is None else sent_id
        request.state.session_id = session_id
        length = request.headers.get("content-length", "")
        is_small = re.fullmatch("[0-9]{1,9}", length) and int(length) <= MAX_CONTROL_BYTES
        try:
            with nullcontext() if is_small else runtime.turns.reading():
                body = await bounded(request, runtime.settings.max_body_bytes).body()
        except AgentError as error:
            if error.type == "payload_too_large":
                raise
            return await self._app(scope, request.receive, send)  # which raises the same error
        receive = _replayed(body, request.receive)
        fields = _read_fields(body)
        if not fields or not re.fullmatch(SESSION_ID, session_id):
            return await self._app(scope, receive, send)
        for name in FIELDS:
            if not isinstance(fields.get(name, False), bool):
                raise AgentError("invalid_request", f"Send {name} as true or false.")
        wanted = [name for name in FIELDS if fields.get(name)]
        if not wanted:
            return await self._app(scope, receive, send)
        if wanted == ["background"]:
            return await self._run(scope, receive, send, find_actor(request))
        is_turn = runtime.read_request(fields, session_id) or not OTHERS.isdisjoint(fields)
        if len(wanted) > 1 or is_turn:
            raise AgentError("invalid_request", f"Send {wanted[-1]} as true, in a separate request.")
        if sent_id is None:
            raise AgentError("invalid_request", "Send the session id in the session header.")
        key = (session_id, read_actor(request, runtime))
        if wanted == ["stop"]:
            response = await stop(runtime, self._recordings, key)
        else:
            last_id = read_header(request, "last-event-id") or fields.get("last_event_id")
            response = await follow(runtime, self._recordings, key, last_id)
        await response(scope, request.receive, send)

    async def _run(self, scope: Scope, receive: Receive, send: Send, actor: str | None) -> None:
        """Run a background turn; respond when it is accepted or rejected."""
        headers = [pair for pair in scope["headers"] if pair[0] != b"accept"]
        headers.append((b"accept", b"text/event-stream"))
        detached = self._start({**scope, "headers": headers}, receive, actor, "events")
        turn = detached.turn
        await detached.wait(turn.accepted)
        if not turn.accepted.is_set() or turn.key is None:
            return await detached.relay(send)
        session_id, _ = turn.key
        body = {"session_id": session_id, "turn_id": turn.recording.turn_id}
        response = JSONResponse(body, 202, {**NO_SNIFF, SESSION_HEADER: session_id})
        await response(scope, receive, send)

    def _start(
        self, scope: Scope, receive: Receive, actor: str | None, format: Format
    ) -> Detached:
        detached = Detached(self._recordings.start(actor, format), self._recordings)
        detached.start(self._app, scope, receive)
        return detached


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


def _read_fields(body: bytes) -> dict[str, Any]:
    """Return the object in a body that has one of FIELDS, or {}."""
    if not any(f'"{name}"'.encode() in body for name in FIELDS):
        return {}
    try:
        value = parse_json(body)
    except AgentError:  # the app raises it again
        return {}
    return value if isinstance(value, dict) else {}
