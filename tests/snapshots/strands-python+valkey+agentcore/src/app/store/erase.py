"""The erasure of one actor's sessions from a store."""

from dataclasses import dataclass, field

from .base import DurableStore, StoreUnavailable, Unsupported
from .owner import UNREADABLE, owner_of


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
