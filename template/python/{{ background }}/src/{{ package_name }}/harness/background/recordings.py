"""The recordings of this process: of running turns, and for EVENT_SECONDS of ended turns."""

import asyncio
from secrets import token_urlsafe
from typing import Protocol

from ..contract import AgentError
from .failures import Format
from .recording import HELD_BYTES, Recording
from .settings import BackgroundSettings

Key = tuple[str, str | None]  # the session id and the actor
KEPT_TURNS = 16  # the ended turns keep as many times MAX_EVENT_BYTES, and HELD_BYTES
OVERHEAD = 1024  # bytes of a recording without events


class Shared(Protocol):
    """The recordings that all replicas share."""

    def publish(self, key: Key, turn: "BackgroundTurn") -> None:
        """Copy the events of a turn of this process from now on. Never fails.

        Sets `published` after the first copy.
        """

    async def newest(self, key: Key) -> Recording | None:
        """Return the newest recording of a session and actor in all replicas, or None.

        A recording of this process also counts until all its events are in the store. The readers
        are disconnected when this process drains. Raises AgentError: `session_forbidden` if only
        another actor has turns in the session, `store_unavailable`, or `draining`.
        """

    async def stop(self, key: Key) -> bool:
        """Ask the replicas to stop the turns of a session and actor; return whether any runs.

        Raises AgentError `store_unavailable`.
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
        while self._kept > KEPT_TURNS * self.settings.max_event_bytes + HELD_BYTES:
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
