"""What a store tells of one session, and how a session goes back to a checkpoint."""

import json
import re
from typing import Any

from .backends import Backend, Unsupported
from .options import read_options
from .rules import show
from .snapshots import read_snapshot

UNREADABLE = "what is stored cannot be read, and the next turn sets it aside"


async def report_of(store: Backend, session: str) -> dict[str, Any]:
    """What `sessions show` tells. Raises Unavailable."""
    stored = await store.load(session)
    report = {"session_id": session, **_summary(stored.snapshot if stored else None)}
    checkpoints: list[dict[str, Any]] = []
    for id in await store.checkpoints(session):
        kept = await store.load(session, checkpoint=id)
        checkpoints.append({"id": id, **_summary(kept.snapshot if kept else None)})
    return report | {"checkpoints": checkpoints, "set_aside": await store.asides(session)}


def _summary(snapshot: bytes | None) -> dict[str, Any]:
    """What is told of a snapshot; its turn is None when it cannot be read."""
    told = dict.fromkeys(("turn", "actor", "created_at", "restored_from"))
    readable = read_snapshot(snapshot or b"", read_options()[0].max_snapshot_bytes)
    if readable is not None:
        value = json.loads(readable)
        told |= {key: (value | value["app_data"]).get(key) for key in told}
        told["created_at"] = re.sub(r"[+]00:00$", "Z", str(told["created_at"]))
    return told | {"bytes": len(snapshot or b"")}


def describe_turn(summary: dict[str, Any]) -> str:
    """A summary of `report_of` in one line, without what could move a cursor."""
    if summary["turn"] is None:
        return f"{UNREADABLE}, {summary['bytes']} bytes"
    actor = f"actor {summary['actor']}" if summary["actor"] is not None else "no actor"
    line = f"turn {summary['turn']}, {actor}, {summary['created_at']}, {summary['bytes']} bytes"
    origin = summary["restored_from"]
    return show(line) + (f", restored from {show(origin)}" if origin else "")


async def take_back(store: Backend, session: str, checkpoint: str) -> int:
    """Save a checkpoint as the latest snapshot, and return its turn.

    Raises Conflict, Unavailable, and Unsupported when there is no such checkpoint.
    """
    most = read_options()[0].max_snapshot_bytes
    kept = await store.load(session, checkpoint=checkpoint)
    snapshot = read_snapshot(kept.snapshot, most) if kept and kept.snapshot else None
    if snapshot is None:
        what = "has no checkpoint" if kept is None else "has an unreadable checkpoint"
        raise Unsupported(f"Session {session} {what} {checkpoint}.")
    stored = await store.load(session)
    expected = stored.revision if stored else None
    if stored and read_snapshot(stored.snapshot or b"", most) is None:
        await store.set_aside(session, stored.revision)  # which a save would overwrite
        expected = None
    value = json.loads(snapshot)
    # Without its idempotency key, which would answer a new turn with the old reply.
    value["app_data"] |= {"key": None, "restored_from": checkpoint}
    await store.save(session, json.dumps(value, ensure_ascii=False).encode(), expected)
    return int(value["app_data"]["turn"])
