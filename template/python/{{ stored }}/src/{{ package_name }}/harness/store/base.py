"""The protocol of durable session stores, its errors, and the order of revisions."""

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeGuard
from urllib.parse import quote, unquote

from uuid_utils import uuid7

from ..collections.erasure import Stock
from ..contract import SESSION_ID
from ..sessions.session_store import Stored

StoreWarning = tuple[str, str]  # the id and the message of a finding
Files = Mapping[str, bytes]  # contents by name: see detached_files.py
NO_FILES: Files = MappingProxyType({})
MIN_READ_LIMIT = 67_108_864  # bytes
UUID7 = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


class Conflict(Exception):
    """The stored revision differs from the expected revision; the store is unchanged."""


class StoreUnavailable(Exception):
    """A call to the store failed. If `indeterminate`, the store may still have made the change.

    The message is logged: it must not contain secrets.
    """

    def __init__(self, message: str, *, indeterminate: bool = True) -> None:
        super().__init__(message)
        self.indeterminate = indeterminate


class Unsupported(Exception):
    """The store does not support the operation; the message is for the agent's owner."""


def segment_of(session_id: str) -> str:
    """Return a session id as a part of a key or path: percent-encoded (RFC 3986).

    Letters, digits, `-`, `.`, `_` and `~` are unchanged, so different ids have different segments.
    """
    return quote(session_id, safe="")


def session_of(segment: str) -> str | None:
    """Return the session id of a segment, or None if the segment is not from `segment_of`."""
    session_id = unquote(segment)
    is_id = re.fullmatch(SESSION_ID, session_id) and segment_of(session_id) == segment
    return session_id if is_id else None


class TooLarge(Stored):
    """A stored snapshot of more than `read_limit` bytes; `snapshot` is empty."""


class DurableStore(Protocol):
    """The sessions of one agent in one collection.

    Snapshots are JSON in UTF-8. The memory-collection specification defines each backend's layout.
    A checkpoint is a copy of a snapshot; its id is a UUIDv7 in lower case, so ids sort by time.
    Every call has a time limit and raises StoreUnavailable.
    """

    @property
    def contact(self) -> str:
        """The address of the store's server or service, without secrets."""

    async def load(self, session_id: str, known: Stored | None = None) -> Stored | None:
        """Return the latest snapshot, or None; return `known` itself if it is the latest.

        The store may return TooLarge instead.
        """

    async def save(
        self,
        session_id: str,
        snapshot: bytes,
        expected: str | None,
        checkpoint: str | None = None,
        files: Files = NO_FILES,
    ) -> str | None:
        """Save if the stored revision is `expected`, or None without data; return the new revision.

        `files` are new files that the snapshot refers to: no reader sees it without them. With
        `checkpoint`, also save a copy under that id. A UUIDv7 revision sorts after
        `expected`, so that the caller can detect a store rolled back to an earlier state.
        Raises Conflict.
        """

    async def save_checkpoint(self, session_id: str, snapshot: bytes, checkpoint: str) -> None:
        """Save a copy under that id, unless `save` always saves a copy; log a failure."""

    async def load_checkpoint(self, session_id: str, checkpoint: str) -> bytes | None:
        """Return the snapshot of a checkpoint, or None; empty instead of TooLarge."""

    async def checkpoints(self, session_id: str) -> list[str]:
        """Return the ids of the checkpoints, oldest first."""

    async def load_files(self, session_id: str, names: Sequence[str]) -> Files:
        """Return the files of a session that exist."""

    async def trim_files(self, session_id: str, dropped: Sequence[str] = ()) -> None:
        """Delete the files that no snapshot of the session refers to; log a failure.

        `dropped` are files that a save no longer needs; a store that can list its files does not
        need the names. A store that uploads files before the snapshot keeps those of the last
        hour, which a running save may need.
        """

    async def quarantine(self, session_id: str, revision: str | None) -> str:
        """Move the latest snapshot to a place that no save overwrites; return its new name.

        Raises Conflict if the stored revision is not `revision`.
        """

    async def quarantined(self, session_id: str) -> list[str]:
        """Return the names of the quarantined snapshots."""

    async def sessions(self) -> list[str]:
        """Return the sorted ids of all sessions. Raises Unsupported."""

    async def end(self, session_id: str) -> None:
        """Delete all data of the session. Idempotent."""

    def leftovers(self) -> list[Stock]:
        """Return the data of the agent's sessions that may remain after all have ended."""

    async def warnings(self) -> list[StoreWarning]:
        """Return risks of losing sessions or keeping them too long, for `check --connect`."""

    async def close(self) -> None:
        """Finish background work and disconnect."""


def read_limit(max_snapshot_bytes: int) -> int:
    """Return the maximum size of a snapshot to read, in bytes.

    It exceeds MAX_SNAPSHOT_BYTES, which may have been larger at the last save. JSON escapes also
    add bytes.
    """
    return max(8 * max_snapshot_bytes, MIN_READ_LIMIT)


def id_after(ids: Iterable[str | None]) -> str:
    """Return a UUIDv7 that sorts after all in `ids`, even if the clock of this process is slow."""
    id = str(uuid7())
    last = max(filter(_is_uuid7, ids), default="")
    if id > last:
        return id
    milliseconds = f"{int(last[:13].replace('-', ''), 16) + 1:012x}"
    return f"{milliseconds[:8]}-{milliseconds[8:]}{id[13:]}"


def is_older(revision: str | None, known: str | None) -> bool:
    """Return whether a revision is older than `known`; False if revisions have no order."""
    return _is_uuid7(revision) and _is_uuid7(known) and revision < known


def _is_uuid7(id: str | None) -> TypeGuard[str]:
    return re.fullmatch(UUID7, id or "") is not None
