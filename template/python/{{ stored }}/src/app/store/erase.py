"""The erasure of one actor's sessions from a store."""

from dataclasses import dataclass, field
from typing import Any

from .base import DurableStore, StoreUnavailable, Unsupported
from .snapshot import parse

UNREADABLE = object()


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
        try:
            ids = await store.sessions()
        except Unsupported:
            ids = candidates
            known = f"only {len(ids)} known ones were looked at"
            report.notes.append(f"the session store cannot list its sessions: {known}")
        for id in ids:
            owner = await _owner(store, id)
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


async def _owner(store: DurableStore, session_id: str) -> object:
    """Return the actor in the latest readable snapshot, None where nothing is stored."""
    stored = await store.load(session_id)
    owner = _actor(stored.snapshot) if stored else UNREADABLE
    if owner is not UNREADABLE:
        return owner
    checkpoints = await store.checkpoints(session_id)
    for id in reversed(checkpoints):
        owner = _actor(await store.load_checkpoint(session_id, id) or b"")
        if owner is not UNREADABLE:
            return owner
    return UNREADABLE if stored or checkpoints or await store.quarantined(session_id) else None


def _actor(snapshot: bytes) -> Any:
    """Return the actor in a snapshot, even in one that no turn could continue from."""
    try:
        return parse(snapshot)["app_data"]["actor"]
    except (TypeError, KeyError):
        return UNREADABLE
