"""Erase an actor's sessions from the session store."""

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256

from ..capability import Capability
from ..modules import LoadModules
from ..settings import CoreSettings
from ..store.base import Conflict, DurableStore, StoreUnavailable, Unsupported
from ..store.capability import Store
from ..store.snapshot import NOTHING, UNREADABLE, owner_of
from .erase import LATER, NO_STORE, Report
from .long_term import LongTermMemory

SHORTENED = "(?s:.{60})-[0-9a-f]{32}"  # a memory's name for a long session id
LONG = "memories store only a part of its id, and the store cannot list its sessions"
RUNNING = "a new session whose first turn is running may remain: run this again after the turn"


class SessionErasure(Capability):
    """Lets `forget` also erase an actor's sessions, and stops recording their turns."""

    # SessionVersions sets it.
    purge: Callable[[DurableStore, Report], Awaitable[None]] | None = None

    def __init__(
        self, settings: CoreSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self._store = Store.find(before)
        long_term = LongTermMemory.find(before)
        long_term.erase_sessions = self.erase
        long_term.is_forgotten = self.is_forgotten

    async def erase(self, report: Report, candidates: list[str]) -> None:
        """End all sessions of an actor; check `candidates` if the store cannot list sessions."""
        store = self._store.durable
        is_writable = self._store.is_writable
        if store is None:
            report.notes += [NO_STORE, LATER]
            return
        place = report.add("the session store", store.contact)
        try:
            if is_writable:
                await _mark_forgotten(store, report.actor)
                report.notes.append(RUNNING)
            try:
                ids = await store.sessions()
            except Unsupported:
                ids = candidates
                checked = f"only {len(ids)} sessions known to memories were checked"
                report.notes.append(f"the session store cannot list its sessions: {checked}")
            for id in ids:
                owner = await owner_of(store, id)
                if owner is NOTHING:
                    await store.trim_files(id)  # of a first turn that was not saved
                if owner is UNREADABLE:
                    report.notes.append(f"session {id} is unreadable, so it may belong to anyone")
                elif owner is NOTHING and re.fullmatch(SHORTENED, id):
                    report.could_not.append(f"a session whose id begins with {id[:60]}: {LONG}")
                elif owner == report.actor and not is_writable:
                    failure = f"session {id}: the session store is read-only here"
                    report.could_not.append(failure)
                elif owner == report.actor:
                    await store.end(id)
                    report.sessions += 1
                    place.sessions += 1
            if is_writable and self.purge:
                await self.purge(store, report)
        except StoreUnavailable as error:
            report.could_not.append(f"sessions: {error}")
        finally:
            await store.close()
        if not is_writable:
            report.notes.append(LATER)

    async def is_forgotten(self, actor: str, started_at: datetime) -> bool:
        """Whether an actor was erased after a turn began. Raises StoreUnavailable."""
        mark = await self._store.durable.load(_mark(actor)) if self._store.durable else None
        at = json.loads(mark.snapshot)["created_at"] if mark else None
        return at is not None and started_at <= datetime.fromisoformat(at)


async def _mark_forgotten(store: DurableStore, actor: str) -> None:
    """Stop all processes from recording earlier turns of the actor."""
    head = {"scope": "agent", "schema_version": "1.0", "created_at": datetime.now(UTC).isoformat()}
    last = {"actor": None, "turn": 0, "key": None, "reply": ""}
    mark = json.dumps(head | {"data": {"messages": []}, "app_data": last}).encode()
    before = await store.load(_mark(actor))
    with suppress(Conflict):  # another process saved the mark
        await store.save(_mark(actor), mark, before.revision if before else None)


def _mark(actor: str) -> str:
    """Return the session id of an actor's erasure mark."""
    return f"forgotten-{sha256(actor.encode()).hexdigest()}"
