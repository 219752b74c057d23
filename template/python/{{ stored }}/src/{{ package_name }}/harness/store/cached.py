"""Caches a durable store, detects conflicts and lost saves, and quarantines unreadable data."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, cast

from cachetools import LRUCache

from ..contract import AgentError
from ..sessions.session_store import InProcess, SnapshotCache, Stored
from .base import (
    Conflict,
    DurableStore,
    Files,
    StoreUnavailable,
    TooLarge,
    Unsupported,
    id_after,
    is_older,
    read_limit,
)
from .detached_files import attach_files, detach_files, is_intact, names_in
from .settings import StoreSettings
from .snapshot import (
    NOTHING,
    UNREADABLE,
    actor_in,
    foreign_format,
    is_same,
    owner_of,
    read_snapshot,
    without_pending,
)

log = logging.getLogger(__name__)
OnSaved = Callable[[], None]
FORGOTTEN = "forgotten-[0-9a-f]{64}"  # marks erased data; no caller may use it
KEPT = "Its turns are kept: continue with --session."
READ_ONLY = "Its turns were not kept: the session store is read-only."
TOO_LARGE = "The session is too large, even without its turns."
UNREAD = "The session is too large to read."
UNCHANGED = "It is unchanged: start a new session, and delete this session with `sessions end`."
UNOWNED = "What is left of this session is unreadable, so its actor is unknown: "
UNOWNED += "delete it with `sessions end`."
GONE = Stored(None, b"")  # cached in this process, but missing from the store


class CachedStore:
    """A SessionStore that caches the snapshots of a DurableStore and asks it only for changes.

    It stores the files of a session beside the snapshot. If the store is read-only, new turns stay
    in this process.
    """

    def __init__(self, settings: StoreSettings, store: DurableStore, is_writable: bool) -> None:
        self._settings = settings
        self._store = store
        self.max_bytes = settings.max_snapshot_bytes
        self.description = ""
        self.retention_notice = KEPT if is_writable else READ_ONLY
        self._local = None if is_writable else InProcess(settings)
        self._known = SnapshotCache(settings)  # with references to files
        self._files: LRUCache[tuple[str, str], bytes] = LRUCache(16 * self.max_bytes, getsizeof=len)
        self._unended = SnapshotCache(settings)  # sessions whose end failed
        # Saves whose outcome is unknown, by session.
        self._unknown: LRUCache[str, tuple[bytes, OnSaved]] = LRUCache(
            16 * self.max_bytes, getsizeof=lambda unknown: len(unknown[0])
        )

    async def load(self, session_id: str) -> Stored | None:
        """Return the committed snapshot, or None, or GONE.

        Raises AgentError:
        - `session_conflict` if another process changed the snapshot during the call
        - `session_corrupt` after it quarantined the snapshot
        - `session_foreign` and `session_too_large`, without a change
        - `session_forbidden` for the id of a `forget` marker
        - `store_unavailable`
        """
        if re.fullmatch(FORGOTTEN, session_id):
            raise AgentError("session_forbidden")
        local = await self._local.load(session_id) if self._local else None
        if local:
            return local if local.snapshot else None  # without a snapshot: ended in this process
        known = self._known.get(session_id)
        stored = await self._load(session_id, None if known == GONE else known)
        if stored is None:
            if known not in (None, GONE):  # expired, evicted, lost in a restart, or ended elsewhere
                log.warning("session %s: its turns vanished from the store", session_id)
                self._known.put(session_id, known := GONE)  # until the next turn is committed
            return known
        self._known.pop(session_id, None)
        unknown = self._unknown.get(session_id)
        if unknown and is_same(stored.snapshot, unknown[0]):
            _, saved = self._unknown.pop(session_id)
            saved()  # the earlier save succeeded
        if stored is not known:
            if isinstance(stored, TooLarge):
                raise _too_large(UNREAD, f"more than {read_limit(self.max_bytes)} bytes")
            snapshot = read_snapshot(stored.snapshot, self.max_bytes)
            if snapshot is None:
                stored, snapshot = await self._read_again(session_id, stored)
            if len(snapshot) > self.max_bytes:
                raise _too_large(TOO_LARGE, f"{len(snapshot)} bytes")
            is_rolled_back = known is not None and is_older(stored.revision, known.revision)
            if is_rolled_back:  # for example by a failover
                message = "the store has lost turns that this process has seen"
                log.warning("session %s: %s", session_id, message)
            if self._local:
                snapshot = without_pending(snapshot)
            stored = Stored(stored.revision, snapshot, is_rolled_back)
        self._known.put(session_id, stored)
        return await self._with_files(session_id, stored)

    async def save(
        self, session_id: str, snapshot: bytes, expected: str | None, saved: OnSaved
    ) -> str | None:
        """Save if the stored revision is `expected`. Cancellation does not stop a started save.

        Raises AgentError `session_conflict` or `store_unavailable`.
        """
        if self._local:
            return await self._local.save(session_id, snapshot, expected, saved)
        revision: str | None = await _uncancelled(self._save(session_id, snapshot, expected, saved))
        return revision

    async def end(self, session_id: str) -> None:
        """Delete the session; if the store is read-only, only in this process.

        Raises AgentError `store_unavailable`.
        """
        known = self._known.pop(session_id, None)
        try:
            if self._local:
                await self._local.save(session_id, b"", None, lambda: None)
            else:
                await _uncancelled(self._store.end(session_id))
            self._unended.pop(session_id, None)
        except StoreUnavailable as error:
            if known:
                self._unended.put(session_id, known)
            raise AgentError("store_unavailable", detail=str(error)) from None

    async def end_rest(self, session_id: str, actor: str | None) -> None:
        """Delete data without a snapshot, such as checkpoints, unless the store is read-only.

        Without such data, delete only old files: recent files may be those of a running first
        turn, and an endpoint would also end the session for its other agents. But repeat an end
        that failed: an endpoint may have done only a part of it.

        Raises AgentError:
        - `session_forbidden` if another actor owns the data
        - `session_corrupt` if its owner is unknown
        - `store_unavailable`
        """
        self._known.pop(session_id, None)
        if self._local:
            return
        try:
            owner = await owner_of(self._store, session_id)
            unended = self._unended.get(session_id)
            if owner is NOTHING and unended:
                owner = actor_in(unended.snapshot)
            if owner is NOTHING:
                return await self._store.trim_files(session_id)
        except StoreUnavailable as error:
            raise AgentError("store_unavailable", detail=str(error)) from None
        if owner is UNREADABLE:
            raise AgentError("session_corrupt", UNOWNED)
        if owner != actor:
            raise AgentError("session_forbidden")
        await self.end(session_id)

    async def snapshots(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the ids and snapshots of all readable sessions.

        Raises AgentError `store_unavailable`, also if the store cannot list its sessions.
        """
        local = dict([item async for item in self._local.snapshots()]) if self._local else {}
        for session_id in await self._ids():
            if session_id in local or re.fullmatch(FORGOTTEN, session_id):
                continue
            stored = await self._load(session_id)
            snapshot = read_snapshot(stored.snapshot, self.max_bytes) if stored else None
            if snapshot:
                yield session_id, snapshot
        for session_id, snapshot in local.items():
            if snapshot:  # without a snapshot: ended in this process
                yield session_id, snapshot

    async def _ids(self) -> list[str]:
        try:
            return await self._store.sessions()
        except (StoreUnavailable, Unsupported) as error:
            raise AgentError("store_unavailable", detail=str(error)) from None

    async def _save(
        self, session_id: str, snapshot: bytes, expected: str | None, saved: OnSaved
    ) -> str | None:
        checkpoint = None
        whole = snapshot
        stored = self._names(self._known.get(session_id), expected)
        snapshot, files = detach_files(whole, stored)
        if files and expected and session_id not in self._known:  # evicted during the turn
            stored = self._names(await self._load(session_id), expected)
            snapshot, files = detach_files(whole, stored)
        try:
            if self._settings.checkpoints:
                checkpoint = id_after(await self._store.checkpoints(session_id))
            revision = await self._store.save(session_id, snapshot, expected, checkpoint, files)
        except (Conflict, StoreUnavailable) as error:
            self._unknown[session_id] = snapshot, saved
            try:
                revision = await self._find_saved(session_id, snapshot, error)
            except AgentError as failure:
                if files and failure.type == "session_conflict":
                    await self._store.trim_files(session_id, [*files])
                raise
            if checkpoint:
                await self._store.save_checkpoint(session_id, snapshot, checkpoint)
        self._unknown.pop(session_id, None)
        self._unended.pop(session_id, None)
        self._known.put(session_id, Stored(revision, snapshot))
        self._cache(session_id, files)
        saved()
        dropped = {*stored} - {*names_in(snapshot)}
        if dropped or files:
            await self._store.trim_files(session_id, [*dropped])
        return revision

    @staticmethod
    def _names(stored: Stored | None, expected: str | None) -> list[str]:
        """Return the names of the files of the expected snapshot."""
        return names_in(stored.snapshot) if stored and stored.revision == expected else []

    async def _with_files(self, session_id: str, stored: Stored) -> Stored:
        """Return a snapshot with its files; a file that the store has lost is empty."""
        if b"sha256" not in stored.snapshot:
            return stored
        names = names_in(stored.snapshot)
        cached = {name: self._files.get((session_id, name)) for name in names}
        files = {name: content for name, content in cached.items() if content is not None}
        if len(files) < len(names):
            files |= await self._load_files(session_id, stored, [*{*names} - {*files}])
        return replace(stored, snapshot=attach_files(stored.snapshot, files))

    async def _load_files(self, session_id: str, stored: Stored, names: Sequence[str]) -> Files:
        """Return the files that exist. Raises AgentError if the snapshot is not the latest."""
        files = await self._read_files(session_id, names)
        if missing := [*{*names} - {*files}]:  # the network may have changed a response
            files |= await self._read_files(session_id, missing)
        if lost := {*names} - {*files}:
            latest = await self._load(session_id)
            if latest is None or latest.revision != stored.revision:  # a save dropped them since
                raise AgentError("session_conflict")
            log.error("session %s: the store has lost %d of its files", session_id, len(lost))
        self._cache(session_id, files)
        return files

    async def _read_files(self, session_id: str, names: Sequence[str]) -> dict[str, bytes]:
        """Return the files that exist and have the digest in their name."""
        try:
            found = await self._store.load_files(session_id, names)
        except StoreUnavailable as error:
            raise AgentError("store_unavailable", detail=str(error)) from None
        return {name: content for name, content in found.items() if is_intact(name, content)}

    def _cache(self, session_id: str, files: Files) -> None:
        for name, content in files.items():
            if len(content) < self._files.maxsize:
                self._files[session_id, name] = content

    async def _find_saved(
        self, session_id: str, snapshot: bytes, error: Conflict | StoreUnavailable
    ) -> str | None:
        """Return the revision of a save whose response was lost; otherwise raise AgentError.

        A client that retries internally may report a conflict with its own first attempt.
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
                # If the turn was saved, a retry with the same key returns its reply.
                log.error("session %s: it is unknown whether the turn was saved", session_id)
            raise AgentError("store_unavailable", detail=str(last)) from None
        return stored.revision

    async def _load(self, session_id: str, known: Stored | None = None) -> Stored | None:
        try:
            return await self._store.load(session_id, known)
        except StoreUnavailable as error:
            raise AgentError("store_unavailable", detail=str(error)) from None

    async def _read_again(self, session_id: str, first: Stored) -> tuple[Stored, bytes]:
        """Return the result of a second read; if that is unreadable too, quarantine the snapshot.

        The network may have cut or changed the first response.
        """
        if reason := foreign_format(first.snapshot):
            message = f"This session cannot be continued: {reason}. It is unchanged."
            raise AgentError("session_foreign", message)
        again = await self._load(session_id)
        if again is None:
            raise AgentError("session_conflict")
        snapshot = read_snapshot(again.snapshot, self.max_bytes)
        if snapshot is not None:
            log.warning("session %s: only the second read was readable", session_id)
            return again, snapshot
        if again != first:
            raise AgentError(
                "store_unavailable", detail="two reads returned different unreadable data"
            )
        raise await _uncancelled(self._quarantine(session_id, again.revision))

    async def _quarantine(self, session_id: str, revision: str | None) -> AgentError:
        try:
            if self._local:
                raise StoreUnavailable("the collection is read-only")
            name = await self._store.quarantine(session_id, revision)
        except Conflict:
            return AgentError("session_conflict")
        except StoreUnavailable as error:
            detail = f"the stored snapshot is unreadable and could not be quarantined: {error}"
            return AgentError("store_unavailable", detail=detail)
        log.error("session %s: quarantined an unreadable snapshot as %s", session_id, name)
        return AgentError("session_corrupt", detail=name)


def _too_large(message: str, detail: str) -> AgentError:
    return AgentError("session_too_large", f"{message} {UNCHANGED}", detail)


async def _uncancelled(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of `work`; ignore cancellation until it ends."""
    task = asyncio.create_task(work)
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cast(asyncio.Task[Any], asyncio.current_task()).uncancel()
    return task.result()
