"""Where committed snapshots live: the protocol of a session store, and the one in memory."""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from cachetools import TTLCache

from ..settings import CoreSettings


@dataclass(frozen=True)
class Stored:
    """A snapshot as a store holds it: JSON in UTF-8, and the revision of that save.

    Revisions are unique. None: the store has no revisions.
    """

    revision: str | None
    snapshot: bytes
    is_rolled_back: bool = False  # older than a state that this process has seen


class SessionStore(Protocol):
    """Where committed snapshots live. Each method raises AgentError when the store fails."""

    max_bytes: int  # of a snapshot
    description: str  # where the sessions are, such as "in this process"
    retention_notice: str  # whether the turns are kept, for those who leave `chat`

    async def load(self, session_id: str) -> Stored | None:
        """Return what was saved last, or None. An empty snapshot: it was here, and has vanished."""

    async def save(
        self, session_id: str, snapshot: bytes, expected: str | None, saved: Callable[[], None]
    ) -> None:
        """Save if the stored revision is `expected` (None: nothing is stored), then call `saved`.

        Otherwise raise and change nothing. A cancel cannot interrupt it. If the reply of the store
        was lost, it raises, and a later `load` that finds the snapshot calls `saved`.
        """

    async def end(self, session_id: str) -> None:
        """Delete the session, known or not."""

    def snapshots(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the ids and snapshots of all sessions that can be read; this uses none of them."""


class SnapshotCache(TTLCache[str, Stored]):
    """Snapshots in memory, limited in number and in bytes; drops the least recently used first."""

    def __init__(self, settings: CoreSettings, timer: Callable[[], float] = time.monotonic) -> None:
        self._capacity = settings.session_capacity
        size, idle = 16 * settings.max_snapshot_bytes, settings.session_idle_seconds
        super().__init__(size, idle, timer, getsizeof=lambda stored: len(stored.snapshot))

    def put(self, session_id: str, stored: Stored) -> None:
        """Add or replace a snapshot; this restarts its idle time."""
        self[session_id] = stored
        if len(self) > self._capacity:
            self.popitem()


class InProcess:
    """A SessionStore in memory; the least recently used session is forgotten first.

    It has no revisions: the queue of a session lets one turn at a time change it.
    """

    description = "in this process"
    retention_notice = "Its turns were not kept: sessions live in this process."

    def __init__(self, settings: CoreSettings, timer: Callable[[], float] = time.monotonic) -> None:
        self.max_bytes, self._entries = settings.max_snapshot_bytes, SnapshotCache(settings, timer)

    async def load(self, session_id: str) -> Stored | None:
        stored = self._entries.get(session_id)
        if stored is not None:
            self._entries.put(session_id, stored)
        return stored

    async def save(
        self, session_id: str, snapshot: bytes, expected: str | None, saved: Callable[[], None]
    ) -> None:
        self._entries.put(session_id, Stored(None, snapshot))
        saved()

    async def end(self, session_id: str) -> None:
        self._entries.pop(session_id, None)

    async def snapshots(self) -> AsyncIterator[tuple[str, bytes]]:
        for session_id, stored in [*self._entries.items()]:
            yield session_id, stored.snapshot

    def dump(self) -> dict[str, str]:
        """Return the snapshots by session, the least recently used first."""
        with self._entries.timer:  # none expires meanwhile
            return {id: stored.snapshot.decode() for id, stored in self._entries.items()}

    def restore(self, snapshots: dict[str, str]) -> None:
        """Add what `dump` returned in another process; this restarts the idle times."""
        for session_id, text in snapshots.items():
            if len(snapshot := text.encode()) <= self.max_bytes:  # which may be another by now
                self._entries.put(session_id, Stored(None, snapshot))
