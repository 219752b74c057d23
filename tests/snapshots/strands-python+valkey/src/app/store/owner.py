"""The actor that a stored session belongs to."""

from typing import Any

from .base import DurableStore
from .snapshot import parse

UNREADABLE = object()


async def owner_of(store: DurableStore, session_id: str) -> object:
    """Return the actor in the latest readable snapshot, None if nothing is stored."""
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
    """Return the actor in a snapshot, even if other parts are invalid."""
    try:
        return parse(snapshot)["app_data"]["actor"]
    except (TypeError, KeyError):
        return UNREADABLE
