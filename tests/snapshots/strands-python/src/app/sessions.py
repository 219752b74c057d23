"""Sessions: one first-in-first-out queue each, and the only way to replace a snapshot."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import accumulate
from typing import Any, NotRequired, TypedDict

from .contract import AgentError, Turn, well_formed
from .session_store import SessionStore, Stored
from .settings import CoreSettings

Snapshot = dict[str, Any]
"""A committed session: {"scope", "schema_version", "created_at", "data", "app_data"}.

`data` is the framework's; `app_data` is the LastTurn.
"""


class LastTurn(TypedDict):
    """What a session keeps of its last turn, besides the messages."""

    actor: str | None
    turn: int
    key: str | None
    reply: str
    restarted: NotRequired[bool]  # the turns before it have vanished from the store


Loaded = tuple[Stored | None, Snapshot | None]


class Session:
    """A session during one turn: the committed snapshot, and the only way to replace it."""

    def __init__(self, id: str, actor: str | None, store: SessionStore, loaded: Loaded):
        self._id, self._actor, self._store = id, actor, store
        self._stored, self.snapshot = loaded
        if self.snapshot and self.snapshot["app_data"]["actor"] != actor:
            raise AgentError("session_forbidden")

    def begin(self, turn: Turn) -> LastTurn | None:
        """Set the turn's number; if its key repeats the last turn's, return that turn for replay.

        Raises AgentError `session_too_large` for a prompt that no session can hold.
        """
        last: LastTurn | None = self.snapshot["app_data"] if self.snapshot else None
        turn.number = last["turn"] + 1 if last else 1
        if last and turn.key is not None and turn.key == last["key"]:
            turn.number, turn.outcome = last["turn"], "replayed"
            return last
        self._check_size(len(turn.prompt.encode()))
        return None

    def _check_size(self, size: int) -> None:
        if size > self._store.max_bytes:
            raise AgentError("session_too_large", detail=f"{size} bytes")

    async def commit(
        self,
        turn: Turn,
        snapshot: Snapshot,
        starts: list[int],
        reply: str,
        saved: Callable[[], None],
    ) -> LastTurn:
        """Save the snapshot that a turn leaves, call `saved`, and return the `app_data`.

        `starts` are the indexes of the messages with which turns begin: if the snapshot is too
        large, the oldest turns are left out. `saved` is a callback because a save whose
        acknowledgement was lost is found by a later load, in another turn.
        """
        last = LastTurn(actor=self._actor, turn=turn.number, key=turn.key, reply=reply)
        if self._stored and not self.snapshot:  # the turns before it have vanished
            last["restarted"] = True
        serialized = _serialize(snapshot | {"app_data": last})
        excess = len(serialized) - self._store.max_bytes
        if excess > 0 and len(starts) > 1:
            data = snapshot["data"]
            ends = [*accumulate(len(_serialize(message)) for message in data["messages"])]
            start = next((at for at in starts[1:] if ends[at - 1] >= excess), starts[-1])
            data["messages"] = data["messages"][start:]
            serialized = _serialize(snapshot | {"app_data": last})
        self._check_size(len(serialized))
        expected = self._stored.revision if self._stored else None
        await self._store.save(self._id, serialized, expected, saved)
        return last

    async def end(self) -> None:
        """Delete the session, if it was found."""
        if self._stored:
            await self._store.end(self._id)


class Sessions:
    """The sessions of this process."""

    def __init__(self, settings: CoreSettings, store: SessionStore) -> None:
        self.store, self._queue = store, settings.session_queue
        self._locks: dict[str, asyncio.Lock] = {}
        self._loads: dict[str, asyncio.Task[Loaded]] = {}  # the latest of each
        self._turns: Counter[str] = Counter()  # running or waiting

    @asynccontextmanager
    async def open(self, session_id: str, actor: str | None) -> AsyncIterator[Session]:
        """Wait for the turns before this one, then load what is committed.

        Raises AgentError: `session_forbidden` if another actor owns the session, checked before and
        after the wait (callers without an actor count as one); `session_busy` at once if too many
        wait; and what the store raises.
        """
        if load := self._loads.get(session_id):  # other actors get no place in the queue
            await asyncio.wait({load})
            if not load.cancelled() and not load.exception():
                Session(session_id, actor, self.store, load.result())
        if self._turns[session_id] > self._queue:
            raise AgentError("session_busy")
        self._turns[session_id] += 1
        try:
            async with self._locks.setdefault(session_id, asyncio.Lock()):
                load = asyncio.create_task(self._load(session_id))
                self._loads[session_id] = load
                yield Session(session_id, actor, self.store, await load)
        finally:
            self._turns[session_id] -= 1
            if not self._turns[session_id]:
                del self._turns[session_id], self._locks[session_id]
                self._loads.pop(session_id, None)

    async def read(self, session_id: str, actor: str | None) -> Snapshot | None:
        """Return what is committed, or None; usually without a wait. Raises like `open`."""
        if load := self._loads.get(session_id):  # what the running turn began with
            await asyncio.wait({load})
            if not load.cancelled():
                return Session(session_id, actor, self.store, load.result()).snapshot
        async with self.open(session_id, actor) as session:
            return session.snapshot

    async def _load(self, session_id: str) -> Loaded:
        stored = await self.store.load(session_id)
        return stored, json.loads(stored.snapshot) if stored and stored.snapshot else None


def _serialize(value: Any) -> bytes:
    return well_formed(json.dumps(value, ensure_ascii=False)).encode()
