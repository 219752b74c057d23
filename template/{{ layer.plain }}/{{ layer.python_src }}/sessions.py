"""Sessions: an LRU of committed snapshots, and one first-in-first-out line for each session."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from cachetools import TTLCache

from .contract import AgentError, Ask, well_formed
from .settings import Settings

Snapshot = dict[str, Any]
"""A committed session: {"scope", "schema_version", "created_at", "data", "app_data"}.

`data` is the framework's; `app_data` is {"actor", "turn", "key", "reply"} of the last turn.
"""


class InProcess:
    """Committed snapshots as JSON; the least recently used session is forgotten first."""

    def __init__(self, settings: Settings) -> None:
        capacity, idle = settings.session_capacity, settings.session_idle_seconds
        self._entries: TTLCache[str, bytes] = TTLCache(capacity, idle)

    async def load(self, session_id: str) -> bytes | None:
        """What was saved last, or None."""
        snapshot = self._entries.get(session_id)
        if snapshot is not None:
            self._entries[session_id] = snapshot  # its idle time begins anew
        return snapshot

    async def save(self, session_id: str, snapshot: bytes) -> None:
        """Replace the snapshot, or raise and change nothing. A cancel must not interrupt it."""
        self._entries[session_id] = snapshot

    async def end(self, session_id: str) -> None:
        """Forget the session, known or not."""
        self._entries.pop(session_id, None)


@dataclass
class Session:
    """A session while one turn of it runs: what is committed, and the one way to change it."""

    ask: Ask
    store: InProcess
    snapshot: Snapshot | None

    def replay(self) -> dict[str, Any] | None:
        """The `app_data` of the last turn, if this is its idempotency key again."""
        last: dict[str, Any] = self.snapshot["app_data"] if self.snapshot else {"key": None}
        return last if self.ask.key is not None and self.ask.key == last["key"] else None

    async def commit(self, snapshot: Snapshot, reply: str) -> dict[str, Any]:
        """Add the turn and return its `app_data`."""
        turn = self.snapshot["app_data"]["turn"] + 1 if self.snapshot else 1
        last = {"actor": self.ask.actor, "turn": turn, "key": self.ask.key, "reply": reply}
        committed = well_formed(json.dumps(snapshot | {"app_data": last}, ensure_ascii=False))
        await self.store.save(self.ask.session_id, committed.encode())
        return last

    async def end(self) -> None:
        """Forget the session."""
        await self.store.end(self.ask.session_id)


class Sessions:
    """All sessions of this process."""

    def __init__(self, settings: Settings, store: InProcess) -> None:
        self._queue, self._store = settings.session_queue, store
        self._locks: dict[str, asyncio.Lock] = {}
        self._turns: Counter[str] = Counter()  # that run or wait

    @asynccontextmanager
    async def open(self, ask: Ask) -> AsyncIterator[Session]:
        """Wait for a turn in the session, then load what is committed.

        Raises AgentError: `session_busy` at once, when too many wait; `session_forbidden`, when
        another actor had the first turn (no actor counts as one); and what the store raises.
        """
        if self._turns[ask.session_id] > self._queue:
            raise AgentError("session_busy")
        self._turns[ask.session_id] += 1
        try:
            async with self._locks.setdefault(ask.session_id, asyncio.Lock()):
                stored = await self._store.load(ask.session_id)
                session = Session(ask, self._store, json.loads(stored) if stored else None)
                if session.snapshot and session.snapshot["app_data"]["actor"] != ask.actor:
                    raise AgentError("session_forbidden")
                yield session
        finally:
            self._turns[ask.session_id] -= 1
            if not self._turns[ask.session_id]:
                del self._turns[ask.session_id], self._locks[ask.session_id]
