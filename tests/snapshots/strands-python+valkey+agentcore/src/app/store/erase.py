"""The erasure of one actor's sessions from a store."""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256

from .base import Conflict, DurableStore, StoreUnavailable, Unsupported
from .owner import UNREADABLE, owner_of

RUNNING = "a first turn of a session that runs now may be kept: run this again then"


@dataclass
class SessionsErased:
    """The ids of the ended sessions; sentences about failures, and about what may be left."""

    ended: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def erase_sessions(
    store: DurableStore, is_writable: bool, actor: str, candidates: list[str]
) -> SessionsErased:
    """End all sessions of an actor; `candidates` are tried where the store cannot list them."""
    report = SessionsErased()
    try:
        if is_writable:
            await _mark_forgotten(store, actor)
            report.notes.append(RUNNING)
        try:
            ids = await store.sessions()
        except Unsupported:
            ids = candidates
            known = f"only {len(ids)} known ones were looked at"
            report.notes.append(f"the session store cannot list its sessions: {known}")
        for id in ids:
            owner = await owner_of(store, id)
            if owner is UNREADABLE:
                report.notes.append(f"session {id} is unreadable, so it may belong to anyone")
            elif owner == actor and not is_writable:
                report.failures.append(f"session {id}: the session store is read-only here")
            elif owner == actor:
                await store.end(id)
                report.ended.append(id)
    except StoreUnavailable as error:
        report.failures.append(f"sessions: {error}")
    return report


async def is_forgotten(store: DurableStore, actor: str, began: datetime) -> bool:
    """Whether an actor was erased after a turn began. Raises StoreUnavailable."""
    mark = await store.load(_mark(actor))
    at = json.loads(mark.snapshot)["created_at"] if mark else None
    return at is not None and began <= datetime.fromisoformat(at)


async def _mark_forgotten(store: DurableStore, actor: str) -> None:
    """Have no process record what turns of the actor said that began before now."""
    head = {"scope": "agent", "schema_version": "1.0", "created_at": datetime.now(UTC).isoformat()}
    last = {"actor": None, "turn": 0, "key": None, "reply": ""}
    mark = json.dumps(head | {"data": {"messages": []}, "app_data": last}).encode()
    before = await store.load(_mark(actor))
    with suppress(Conflict):  # it was marked meanwhile
        await store.save(_mark(actor), mark, before.revision if before else None)


def _mark(actor: str) -> str:
    """Return the session id under which a store keeps that an actor was erased."""
    return f"forgotten-{sha256(actor.encode()).hexdigest()}"
