"""Caches a durable store, detects conflicts and lost saves, and quarantines unreadable data."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

from cachetools import LRUCache

from ..contract import AgentError
from ..sessions.session_store import InProcess, SnapshotCache, Stored
from .base import Conflict, DurableStore, StoreUnavailable, Unsupported, id_after, is_older
from .settings import StoreSettings
from .snapshot import foreign_format, is_same, read_snapshot

log = logging.getLogger(__name__)
Saved = Callable[[], None]
FORGOTTEN = "forgotten-[0-9a-f]{64}"  # the markers of `forget`, which no caller may use
KEPT = "Its turns are kept: continue with --session."
READ_ONLY = "Its turns were not kept: the session store is read-only."
TOO_LARGE = "The session is too large, even without its turns. It is unchanged: "
TOO_LARGE += "start a new session, and delete this one with the command `sessions end`."
GONE = Stored(None, b"")  # of a session that was cached here and is missing from the store


class CachedStore:
    """A SessionStore that caches snapshots; the store only confirms that they are the latest.

    If the store is read-only, new turns stay in this process.
    """

    def __init__(self, settings: StoreSettings, store: DurableStore, is_writable: bool) -> None:
        self._settings, self._store = settings, store
        self.max_bytes, self.description = settings.max_snapshot_bytes, ""
        self.retention_notice = KEPT if is_writable else READ_ONLY
        self._local = None if is_writable else InProcess(settings)
        self._known = SnapshotCache(settings)
        # Saves whose outcome is unknown, by session.
        self._unknown: LRUCache[str, tuple[bytes, Saved]] = LRUCache(
            16 * self.max_bytes, getsizeof=lambda unknown: len(unknown[0])
        )

    async def load(self, session_id: str) -> Stored | None:
        """Return the committed snapshot, or None, or GONE.

        Raises AgentError: `store_unavailable`; `session_corrupt` after a quarantine;
        `session_foreign` and `session_too_large` for what stays as it is; `session_conflict` when
        another process changed the snapshot meanwhile; `session_forbidden` for the markers of
        `forget`.
        """
        if re.fullmatch(FORGOTTEN, session_id):
            raise AgentError("session_forbidden")
        own = await self._local.load(session_id) if self._local else None
        if own:
            return own if own.snapshot else None  # without a snapshot: ended in this process
        known = self._known.get(session_id)
        stored = await self._load(session_id, None if known == GONE else known)
        if stored is None:
            if known not in (None, GONE):  # expired, evicted, lost in a restart or ended elsewhere
                log.warning("session %s: its turns vanished from the store", session_id)
                self._known.put(session_id, known := GONE)  # until the next turn is committed
            return known
        self._known.pop(session_id, None)
        unknown = self._unknown.get(session_id)
        if unknown and is_same(stored.snapshot, unknown[0]):
            _, saved = self._unknown.pop(session_id)
            saved()  # the earlier save has succeeded
        if stored is not known:
            snapshot = read_snapshot(stored.snapshot, self.max_bytes)
            if snapshot is None:
                stored, snapshot = await self._read_again(session_id, stored)
            if len(snapshot) > self.max_bytes:
                raise AgentError("session_too_large", TOO_LARGE, f"{len(snapshot)} bytes")
            is_rolled_back = known is not None and is_older(stored.revision, known.revision)
            if is_rolled_back:  # such as in a failover
                what = "the store has lost turns that this process has seen"
                log.warning("session %s: %s", session_id, what)
            stored = Stored(stored.revision, snapshot, is_rolled_back)
        self._known.put(session_id, stored)
        return stored

    async def save(
        self, session_id: str, snapshot: bytes, expected: str | None, saved: Saved
    ) -> None:
        """Save if the stored revision is `expected`. A started save cannot be cancelled.

        Raises AgentError: `session_conflict` and `store_unavailable`.
        """
        if self._local:
            return await self._local.save(session_id, snapshot, expected, saved)
        await _uncancelled(self._save(session_id, snapshot, expected, saved))

    async def end(self, session_id: str) -> None:
        """Delete the session; if the store is read-only, only in this process.

        Raises AgentError: `store_unavailable`.
        """
        self._known.pop(session_id, None)
        try:
            if self._local:
                await self._local.save(session_id, b"", None, lambda: None)
            else:
                await _uncancelled(self._store.end(session_id))
        except StoreUnavailable as error:
            raise AgentError("store_unavailable", detail=str(error)) from None

    async def snapshots(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the ids and snapshots of the sessions; leave out those that cannot be read.

        Raises AgentError `store_unavailable`, also for a store that cannot list its sessions.
        """
        own = dict([item async for item in self._local.snapshots()]) if self._local else {}
        for session_id in await self._ids():
            if session_id in own or re.fullmatch(FORGOTTEN, session_id):
                continue
            stored = await self._load(session_id)
            snapshot = read_snapshot(stored.snapshot, self.max_bytes) if stored else None
            if snapshot:
                yield session_id, snapshot
        for session_id, snapshot in own.items():
            if snapshot:  # without a snapshot: ended in this process
                yield session_id, snapshot

    async def _ids(self) -> list[str]:
        try:
            return await self._store.sessions()
        except (StoreUnavailable, Unsupported) as error:
            raise AgentError("store_unavailable", detail=str(error)) from None

    async def _save(
        self, session_id: str, snapshot: bytes, expected: str | None, saved: Saved
    ) -> None:
        checkpoint = None
        try:
            if self._settings.checkpoints:
                checkpoint = id_after(await self._store.checkpoints(session_id))
            revision = await self._store.save(session_id, snapshot, expected, checkpoint)
        except (Conflict, StoreUnavailable) as error:
            self._unknown[session_id] = snapshot, saved
            revision = await self._look_up(session_id, snapshot, error)
            if checkpoint:
                await self._store.save_checkpoint(session_id, snapshot, checkpoint)
        self._unknown.pop(session_id, None)
        self._known.put(session_id, Stored(revision, snapshot))
        saved()

    async def _look_up(
        self, session_id: str, snapshot: bytes, error: Conflict | StoreUnavailable
    ) -> str | None:
        """Return the revision of a save whose acknowledgement was lost; else raise AgentError.

        A store client that retries internally conflicts with its own first attempt.
        """
        try:
            if isinstance(error, StoreUnavailable) and not error.indeterminate:
                del self._unknown[session_id]
                raise error
            stored = await self._store.load(session_id)
            if stored is None or not is_same(stored.snapshot, snapshot):
                raise error
        except Conflict:
            raise AgentError("session_conflict") from None
        except StoreUnavailable as last:
            if last is not error:
                # If the turn was saved, a retry with the same key gets its reply.
                log.error("session %s: it is unknown whether the turn was saved", session_id)
            raise AgentError("store_unavailable", detail=str(last)) from None
        return stored.revision

    async def _load(self, session_id: str, known: Stored | None = None) -> Stored | None:
        try:
            return await self._store.load(session_id, known)
        except StoreUnavailable as error:
            raise AgentError("store_unavailable", detail=str(error)) from None

    async def _read_again(self, session_id: str, first: Stored) -> tuple[Stored, bytes]:
        """Return what a second read finds; quarantine what is unreadable in both.

        The second read may be readable, as the first one was cut or changed on its way.
        """
        if reason := foreign_format(first.snapshot):
            message = f"This session cannot be continued: {reason}. It is unchanged."
            raise AgentError("session_foreign", message)
        again = await self._load(session_id)
        if again is None:
            raise AgentError("session_conflict")
        snapshot = read_snapshot(again.snapshot, self.max_bytes)
        if snapshot is not None:
            log.warning("session %s: only its second read was readable", session_id)
            return again, snapshot
        if again != first:
            raise AgentError("store_unavailable", detail="two unreadable reads differ")
        raise await _uncancelled(self._quarantine(session_id, again.revision))

    async def _quarantine(self, session_id: str, revision: str | None) -> AgentError:
        try:
            if self._local:
                raise StoreUnavailable("the collection is read-only")
            where = await self._store.quarantine(session_id, revision)
        except Conflict:
            return AgentError("session_conflict")
        except StoreUnavailable as error:
            detail = f"the stored snapshot is unreadable, and was not quarantined: {error}"
            return AgentError("store_unavailable", detail=detail)
        log.error("session %s: its stored snapshot is unreadable, and now at %s", session_id, where)
        return AgentError("session_corrupt", detail=where)


async def _uncancelled(work: Coroutine[Any, Any, Any]) -> Any:
    """Await work to its end, and ignore cancellation meanwhile."""
    task = asyncio.create_task(work)
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cast(asyncio.Task[Any], asyncio.current_task()).uncancel()
    return task.result()
