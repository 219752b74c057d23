"""Readers: they follow a recording, and stop its turn."""

import re
from collections.abc import AsyncIterator
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ..contract import SESSION_HEADER, SESSION_ID, AgentError
from ..http.requests import read_actor
from ..http.server import KEEP_ALIVE, Events
from ..runtime import Runtime
from ..sessions.session_store import InProcess
from .failures import format_error
from .recording import Recording
from .recordings import Key, Recordings

EVENT_ID = r"([A-Za-z0-9_-]{16})\.([0-9]{1,15})"
TURN_HEADER = "X-Turn-Id"  # of a stream for useChat: its turn continues without clients
CHUNK_BYTES = 65_536  # sent at once: a slow reader holds no more
OF_CHAT = "This turn belongs to useChat: follow it with GET /api/chat/{}/stream."
NOTHING = "This session has no background turn, or it ended more than EVENT_SECONDS ago."


class EventStream(StreamingResponse):
    """The events of a recording after a position, until its end."""

    def __init__(
        self, recording: Recording, position: int, seconds: int, *, is_numbered: bool
    ) -> None:
        super().__init__(self._read(), headers=Events.headers, media_type="text/event-stream")
        self._recording = recording
        self._position = position
        self._seconds = seconds  # of silence before a comment
        self._is_numbered = is_numbered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            head = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **head})
            return await send({"type": "http.response.body"})
        with self._recording.reading(lambda: self._position):
            await super().__call__(scope, receive, send)

    async def _read(self) -> AsyncIterator[bytes]:
        recording = self._recording
        while not recording.is_closed:
            try:
                events = recording.read(self._position, CHUNK_BYTES)
            except AgentError as error:
                yield format_error(recording.format, error)
                return
            if events:
                yield b"".join(map(self._number, events))
            elif recording.is_ended:
                if recording.lost and self._position < recording.final:
                    self._position = recording.final - 1
                    yield self._number(recording.lost)
                return
            elif not await recording.wait(self._seconds):
                yield KEEP_ALIVE.encode()

    def _number(self, event: bytes) -> bytes:
        self._position += 1
        if not self._is_numbered:
            return event
        return f"id: {self._recording.turn_id}.{self._position}\n".encode() + event


def add_turn_id(response: Response, recording: Recording) -> None:
    """Add the id of the turn, which pages in ALLOWED_ORIGINS may read."""
    response.headers[TURN_HEADER] = recording.turn_id
    # With capitals, because the CORS middleware replaces the header in lower case.
    response.raw_headers.append((b"Access-Control-Expose-Headers", TURN_HEADER.encode()))


def read_key(request: Request, runtime: Runtime, session_id: str) -> Key:
    """Return the session and the actor of a request. Raises AgentError if they are invalid."""
    request.state.session_id = session_id
    if not re.fullmatch(SESSION_ID, session_id):
        raise AgentError("invalid_session_id")
    return session_id, read_actor(request, runtime)


async def follow(runtime: Runtime, recordings: Recordings, key: Key, last_id: object) -> Response:
    """Return the events of the newest turn of a session and actor.

    `last_id` is the id of the last event that the client has received. After the last event of an
    ended turn, the status is 204, so that an EventSource does not reconnect. Raises AgentError:
    `not_found`, `session_forbidden`, `events_lost`, `turn_elsewhere`, or `rate_limited` if the turn
    has too many readers.
    """
    session_id, _ = key
    recording = await find(runtime, recordings, key)
    if recording is None:
        session = await runtime.sessions.read(*key)
        is_elsewhere = session.last and may_run_elsewhere(runtime, recordings)
        raise AgentError("turn_elsewhere") if is_elsewhere else _not_found()
    if recording.format == "chat":
        raise AgentError("turn_elsewhere", OF_CHAT.format(quote(session_id, safe="")))
    position = 0
    match = re.fullmatch(EVENT_ID, last_id) if isinstance(last_id, str) else None
    if match and match[1] == recording.turn_id:
        position = int(match[2])
        if recording.is_ended and position >= recording.final:
            return Response(status_code=204, headers={SESSION_HEADER: session_id})
    check_reader(recordings, recording, position)
    seconds = runtime.settings.keep_alive_seconds
    stream = EventStream(recording, position, seconds, is_numbered=True)
    stream.headers[SESSION_HEADER] = session_id
    return stream


async def stop(runtime: Runtime, recordings: Recordings, key: Key) -> bool:
    """Cancel the background turns of a session and actor; return whether any was running.

    Raises AgentError `session_forbidden` for another actor's session.
    """
    is_stopped = recordings.stop(key)
    if recordings.shared:
        try:
            is_stopped = await recordings.shared.stop(key) or is_stopped
        except AgentError:
            if not is_stopped:
                raise
    if not is_stopped and await find(runtime, recordings, key) is None:
        await runtime.sessions.read(*key)
    return is_stopped


def may_run_elsewhere(runtime: Runtime, recordings: Recordings) -> bool:
    """Whether another replica may run turns that this replica cannot find."""
    return recordings.shared is None and not isinstance(runtime.sessions.store, InProcess)


async def find(runtime: Runtime, recordings: Recordings, key: Key) -> Recording | None:
    """Return the newest recording of a session and actor, of any replica.

    Raises AgentError `session_forbidden` for another actor's session.
    """
    try:
        return await _find(recordings, key)
    except AgentError as error:
        if error.type != "session_forbidden":
            raise
        # The session may belong to this actor, and have refused the turn of the other actor.
        if not (await runtime.sessions.read(*key)).last:
            raise
        return None


async def _find(recordings: Recordings, key: Key) -> Recording | None:
    """Raises AgentError `session_forbidden` if only another actor has turns in the session."""
    session_id, _ = key
    recording = recordings.find(key)
    if recording and not recording.is_ended:
        return recording
    if recordings.shared is None:
        if recording is None and recordings.has(session_id):
            raise AgentError("session_forbidden")
        return recording
    try:
        return await recordings.shared.newest(key)
    except AgentError as error:
        if recording is None or error.type != "store_unavailable":
            raise
        return recording


def check_reader(recordings: Recordings, recording: Recording, position: int) -> None:
    """Raise an error if no reader can start after this position.

    Raises AgentError: `rate_limited` if the recording has MAX_READERS readers, or `events_lost`.
    """
    if len(recording.readers) >= recordings.settings.max_readers:
        raise AgentError("rate_limited", "This turn has too many readers; retry later.")
    recording.read(position, 0)


def _not_found() -> AgentError:
    return AgentError("not_found", NOTHING)
