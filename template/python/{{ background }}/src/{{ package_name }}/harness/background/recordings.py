"""The recorded events of background turns, in this process."""

import asyncio
import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_urlsafe
from typing import Literal, Protocol

from ..contract import ERRORS, AgentError
from ..http.server import Events
from .settings import BackgroundSettings

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
Key = tuple[str, str | None]  # the session id and the actor
KEPT_TURNS = 16  # the ended turns of a process keep at most as many times MAX_EVENT_BYTES
LOST_NUMBER = 10**15 - 1  # of `turn_lost`: the killed process may have sent unsaved events
OVERHEAD = 1024  # bytes of a recording without events
DONE = "data: [DONE]\n\n"


class Recording:
    """The events of a turn, in order and numbered from 1.

    Above `max_bytes`, the oldest events are dropped. Readers read by position, so they delay
    neither the turn nor each other.
    """

    def __init__(self, turn_id: str, format: Format, max_bytes: int) -> None:
        self.turn_id = turn_id
        self.format: Format = format
        self.first = 1  # the number of the oldest event that is not dropped
        self.size = 0  # bytes
        self.is_ended = False
        self.is_closed = False  # readers must reconnect
        self.lost: bytes | None = None  # the last event, if the process that runs the turn ended
        self.readers = set[asyncio.Task[None]]()
        self._max_bytes = max_bytes
        self._events = deque[bytes]()
        self._news = asyncio.Event()

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self.first + len(self._events) - 1

    @property
    def final(self) -> int:
        """The number of the last event of an ended turn, also if its process has ended."""
        return LOST_NUMBER if self.lost else self.last

    def append(self, event: bytes) -> None:
        """Add an event: its lines, and the empty line at their end."""
        self._events.append(event)
        self.size += len(event)
        while self.size > self._max_bytes:
            self.size -= len(self._events.popleft())
            self.first += 1
        self._notify()

    def skip_to(self, number: int) -> None:
        """Drop all events; the next event has this number."""
        self._events.clear()
        self.size = 0
        self.first = number

    def end(self) -> None:
        """Mark the end: no more events follow."""
        self.is_ended = True
        self._notify()

    def lose(self, event: bytes) -> None:
        """Mark the end of a turn whose process has ended; readers get `event` after all others."""
        self.lost = event
        self.end()

    def close(self) -> None:
        """Disconnect the readers, so that they reconnect to another replica."""
        self.is_closed = True
        self._notify()

    def read(self, position: int, max_bytes: int) -> list[bytes]:
        """Return the events after `position`: at least one if there is one, in about `max_bytes`.

        Raises AgentError `events_lost` if the next event was dropped.
        """
        if position + 1 < self.first:
            raise AgentError("events_lost")
        events = list[bytes]()
        size = 0
        for index in range(position + 1 - self.first, len(self._events)):
            events.append(self._events[index])
            size += len(events[-1])
            if size >= max_bytes:
                break
        return events

    async def wait(self, seconds: float) -> bool:
        """Wait for the next event or the end; return False after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                return await self._news.wait()
        except TimeoutError:
            return False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count the current task as a reader. `expire` ends the block without an error."""
        task = asyncio.current_task()
        assert task
        self.readers.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if task in self.readers:
                raise
            task.uncancel()
        finally:
            self.readers.discard(task)

    def expire(self) -> None:
        """Disconnect the readers, even if they do not receive."""
        readers = self.readers
        self.readers = set()
        for reader in readers:
            reader.cancel()

    def _notify(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class Shared(Protocol):
    """The recordings that all replicas share."""

    def publish(self, key: Key, turn: "BackgroundTurn") -> None:
        """Copy the events of a turn of this process from now on. Never fails.

        Sets `published` after the first copy.
        """

    async def newest(self, key: Key) -> Recording | None:
        """Return the newest recording of a session and actor in all replicas, or None.

        If the store has none, a recording of this process counts until all its events are written.
        The readers are disconnected when this process drains. Raises AgentError:
        `session_forbidden` if only another actor has turns in the session, `store_unavailable`,
        or `draining`.
        """

    async def stop(self, key: Key) -> bool:
        """Ask the replica that runs the turn to stop it; return whether a turn runs.

        Raises AgentError: `session_forbidden`, `store_unavailable`.
        """

    def forget(self, session_id: str) -> None:
        """Delete the recordings of a session. Never fails."""


class BackgroundTurn:
    """A running background turn and its recording."""

    def __init__(self, actor: str | None, format: Format, max_bytes: int) -> None:
        self.actor = actor
        self.key: Key | None = None  # None until the turn starts
        self.recording = Recording(token_urlsafe(12), format, max_bytes)
        self.published = asyncio.Event()  # other replicas know the turn
        self.stopping = asyncio.Event()


def format_error(format: Format, error: AgentError) -> bytes:
    """Return the last events of a failed turn."""
    if format == "chat":
        part = {"type": "error", "errorText": f"{error.type}: {error}"}
        return f"data: {json.dumps(part, separators=(',', ':'))}\n\n{DONE}".encode()
    return Events().format_error(error).encode()


class Recordings:
    """The recordings of this process: the newest of each session and actor."""

    def __init__(self, settings: BackgroundSettings) -> None:
        self.settings = settings
        self.shared: Shared | None = None
        self.running = set[BackgroundTurn]()
        self._newest = dict[str, dict[str | None, Recording]]()  # by session and actor
        self._ended = dict[Recording, Key]()  # in the order of their ends
        self._timers = dict[Recording, asyncio.TimerHandle]()
        self._kept = 0  # bytes of the ended recordings

    def start(self, actor: str | None, format: Format) -> BackgroundTurn:
        """Return a new background turn.

        Raises AgentError: `server_busy` or `rate_limited` at a limit.
        """
        settings = self.settings
        if len(self.running) >= settings.max_background_turns:
            raise AgentError("server_busy")
        count = sum(turn.actor == actor for turn in self.running)
        if actor is not None and count >= settings.max_background_turns_per_actor:
            message = f"This actor already has {count} background turns; retry later."
            raise AgentError("rate_limited", message)
        turn = BackgroundTurn(actor, format, settings.max_event_bytes)
        self.running.add(turn)
        return turn

    def add(self, key: Key, turn: BackgroundTurn) -> None:
        """Make the recording of a turn the newest of a session and actor."""
        self._drop(key)
        session_id, actor = key
        self._newest.setdefault(session_id, {})[actor] = turn.recording
        if self.shared:
            self.shared.publish(key, turn)
        else:
            turn.published.set()

    def end(self, turn: BackgroundTurn) -> None:
        """Handle the end of a turn: its recording expires EVENT_SECONDS later."""
        self.running.discard(turn)
        recording = turn.recording
        recording.end()
        key = turn.key
        is_newest = key is not None and self.find(key) is recording
        if not is_newest and not recording.readers:
            return
        loop = asyncio.get_running_loop()
        seconds = self.settings.event_seconds
        self._timers[recording] = loop.call_later(seconds, self._expire, recording)
        if key is None or not is_newest:
            return
        self._ended[recording] = key
        self._kept += OVERHEAD + recording.size
        while self._kept > KEPT_TURNS * self.settings.max_event_bytes:
            self._drop(next(iter(self._ended.values())))

    def find(self, key: Key) -> Recording | None:
        """Return the newest recording of a session and actor in this process."""
        session_id, actor = key
        return self._newest.get(session_id, {}).get(actor)

    def has(self, session_id: str) -> bool:
        """Whether this process has a recording of a session, of any actor."""
        return session_id in self._newest

    def stop(self, key: Key) -> bool:
        """Cancel the turns of a session and actor; return whether one ran in this process."""
        turns = [turn for turn in self.running if turn.key == key]
        for turn in turns:
            turn.stopping.set()
        return bool(turns)

    def forget(self, session_id: str) -> None:
        """Delete the recordings of a session, except those of running turns."""
        for key in [*self._ended.values()]:
            if key[0] == session_id:
                self._drop(key)
        if self.shared:
            self.shared.forget(session_id)

    def _drop(self, key: Key) -> None:
        session_id, actor = key
        recordings = self._newest.get(session_id, {})
        recording = recordings.pop(actor, None)
        if not recordings:
            self._newest.pop(session_id, None)
        if recording and self._ended.pop(recording, None):
            self._kept -= OVERHEAD + recording.size
            if not recording.readers:
                self._timers.pop(recording).cancel()

    def _expire(self, recording: Recording) -> None:
        if key := self._ended.get(recording):
            self._drop(key)
        self._timers.pop(recording, None)
        recording.expire()
