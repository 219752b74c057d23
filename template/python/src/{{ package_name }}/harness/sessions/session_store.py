"""Session stores: their protocol, and the in-memory store."""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from cachetools import TTLCache

from ..settings import CoreSettings


@dataclass(frozen=True)
class Stored:
    """A stored snapshot: JSON in UTF-8, and the unique revision of its save.

    `revision` is None in a store without revisions. `snapshot == b""` means the session existed but
    the store has lost it.
    """

    revision: str | None
    snapshot: bytes
    is_rolled_back: bool = False  # older than a snapshot that this process has loaded


class SessionStore(Protocol):
    """A store of committed snapshots. Methods raise AgentError when the store fails."""

    max_bytes: int  # of a snapshot
    description: str  # the location, such as "in this process"
    retention_notice: str  # a sentence about whether turns are saved; `chat` prints it last

    async def load(self, session_id: str) -> Stored | None:
        """Return the latest save, or None for an unknown session."""

    async def save(
        self, session_id: str, snapshot: bytes, expected: str | None, saved: Callable[[], None]
    ) -> str | None:
        """Save if the stored revision is `expected` (None: no snapshot), then call `saved`.

        Return the new revision. With another stored revision, raise and change nothing.
        Cancellation does not interrupt a save. If the store's reply is lost, `save` raises, and the
        `load` that finds the snapshot calls `saved`.
        """

    async def end(self, session_id: str) -> None:
        """Delete a session; ignore an unknown id."""

    async def end_rest(self, session_id: str, actor: str | None) -> None:
        """Delete the actor's data of a session that has no snapshot; ignore an unknown id."""

    def snapshots(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the ids and snapshots of all readable sessions, without restarting idle times."""


class SnapshotCache(TTLCache[str, Stored]):
    """A cache of snapshots; above its limits, it drops the least recently used snapshot."""

    def __init__(self, settings: CoreSettings, timer: Callable[[], float] = time.monotonic) -> None:
        self._capacity = settings.session_capacity
        size = 16 * settings.max_snapshot_bytes
        idle = settings.session_idle_seconds
        super().__init__(size, idle, timer, getsizeof=lambda stored: len(stored.snapshot))

    def put(self, session_id: str, stored: Stored) -> None:
        """Add or replace a snapshot; this restarts its idle time."""
        self[session_id] = stored
        if len(self) > self._capacity:
            self.popitem()


class InProcess:
    """A SessionStore in memory that drops the least recently used session first.

    It needs no revisions, because a session's queue runs its turns in sequence.
    """

    description = "in this process"
    retention_notice = "Its turns were not saved: sessions live in this process."

    def __init__(self, settings: CoreSettings, timer: Callable[[], float] = time.monotonic) -> None:
        self.max_bytes = settings.max_snapshot_bytes
        self._entries = SnapshotCache(settings, timer)

    async def load(self, session_id: str) -> Stored | None:
        stored = self._entries.get(session_id)
        if stored is not None:
            self._entries.put(session_id, stored)
        return stored

    async def save(
        self, session_id: str, snapshot: bytes, expected: str | None, saved: Callable[[], None]
    ) -> str | None:
        self._entries.put(session_id, Stored(None, snapshot))
        saved()
        return None

    async def end(self, session_id: str) -> None:
        self._entries.pop(session_id, None)

    async def end_rest(self, session_id: str, actor: str | None) -> None:
        """Do nothing: only snapshots are stored."""

    async def snapshots(self) -> AsyncIterator[tuple[str, bytes]]:
        for session_id, stored in [*self._entries.items()]:
            yield session_id, stored.snapshot

    def dump(self) -> dict[str, str]:
        """Return the snapshots by session id, the least recently used first."""
        with self._entries.timer:  # pauses expiry
            return {id: stored.snapshot.decode() for id, stored in self._entries.items()}

    def restore(self, snapshots: dict[str, str]) -> None:
        """Add another process's `dump`; this restarts the idle times."""
        for session_id, text in snapshots.items():
            if len(snapshot := text.encode()) <= self.max_bytes:  # the limit may have changed
                self._entries.put(session_id, Stored(None, snapshot))
