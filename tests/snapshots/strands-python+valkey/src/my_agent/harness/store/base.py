"""The protocol of a durable session store, and its failures."""

import re
from collections.abc import Iterable
from typing import Protocol, TypeGuard

from uuid_utils import uuid7

from ..sessions.session_store import Stored

Warned = tuple[str, str]  # the id of a finding, and its message
LEAST_READ = 67_108_864  # bytes
UUID7 = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


class Conflict(Exception):
    """The stored revision is not the expected one; nothing was changed."""


class StoreUnavailable(Exception):
    """The store did not confirm a call; `indeterminate` when it may have changed something."""

    def __init__(self, what: str, *, indeterminate: bool = True) -> None:
        super().__init__(what)  # logged: without secrets
        self.indeterminate = indeterminate


class Unsupported(Exception):
    """The store does not support the request; the message is for the owner."""


class DurableStore(Protocol):
    """The sessions of one agent in one collection. Every call has a time limit.

    Snapshots are JSON in UTF-8, in the layout that the memory-collection specification gives each
    backend. A checkpoint is the copy of a snapshot under a UUIDv7 in lower case; these ids sort by
    time. Every method raises StoreUnavailable.
    """

    @property
    def contact(self) -> str:
        """The server or service of the store, without secrets."""

    async def load(self, session_id: str, known: Stored | None = None) -> Stored | None:
        """Return the latest snapshot, or None; `known` itself if it is still the latest.

        A snapshot of more than `read_limit` bytes may be returned empty.
        """

    async def save(
        self, session_id: str, snapshot: bytes, expected: str | None, checkpoint: str | None = None
    ) -> str | None:
        """Save if the stored revision is `expected` (None: nothing is stored); return the new one.

        A revision that is a UUIDv7 sorts after `expected`: then a store that has gone back to an
        earlier state is noticed. With `checkpoint`, also save a copy under that id. Raises
        Conflict.
        """

    async def save_checkpoint(self, session_id: str, snapshot: bytes, checkpoint: str) -> None:
        """Save a copy under that id, unless `save` always does; log a failure."""

    async def load_checkpoint(self, session_id: str, checkpoint: str) -> bytes | None:
        """Return the snapshot of a checkpoint, or None."""

    async def checkpoints(self, session_id: str) -> list[str]:
        """Return the ids of the checkpoints, oldest first."""

    async def quarantine(self, session_id: str, revision: str | None) -> str:
        """Move the latest snapshot to where nothing overwrites it, and return its name there.

        Raises Conflict if the snapshot has another revision.
        """

    async def quarantined(self, session_id: str) -> list[str]:
        """Return the names of the quarantined snapshots."""

    async def sessions(self) -> list[str]:
        """Return the ids of all sessions in order. Raises Unsupported."""

    async def end(self, session_id: str) -> None:
        """Delete all data of the session. Idempotent."""

    async def warnings(self) -> list[Warned]:
        """Return the risks that sessions are lost or retained, for `check --connect`."""

    async def close(self) -> None:
        """Finish background work, and disconnect."""


def read_limit(max_snapshot_bytes: int) -> int:
    """Return the maximum size of a snapshot that is read, in bytes.

    MAX_SNAPSHOT_BYTES may have been larger at the last save, and escapes make JSON longer.
    """
    return max(8 * max_snapshot_bytes, LEAST_READ)


def id_after(ids: Iterable[str | None]) -> str:
    """Return a UUIDv7 that sorts after those in `ids`, even if this process has a slow clock."""
    id, last = str(uuid7()), max(filter(_is_uuid7, ids), default="")
    if id > last:
        return id
    milliseconds = f"{int(last[:13].replace('-', ''), 16) + 1:012x}"
    return f"{milliseconds[:8]}-{milliseconds[8:]}{id[13:]}"


def is_older(revision: str | None, known: str | None) -> bool:
    """Whether a revision was saved before another; False if the store does not order them."""
    return _is_uuid7(revision) and _is_uuid7(known) and revision < known


def _is_uuid7(id: str | None) -> TypeGuard[str]:
    return re.fullmatch(UUID7, id or "") is not None
