"""The rules of a turn with a store: an LRU in front of it, and a comparison before each change."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextvars import ContextVar
from typing import Any, cast

from cachetools import TTLCache
from uuid_utils import uuid7

from ..sessions import InProcess
from ..settings import Settings
from .backends import Backend, Conflict, Stored, Unavailable
from .errors import StoreError
from .mirror import Mirror
from .options import Options
from .snapshots import is_same, read_snapshot

log = logging.getLogger(__name__)
_loaded: ContextVar[Stored | None] = ContextVar("loaded")  # what this task's turn started from


class Cached(InProcess):
    """Snapshots of a store, with those that this process knows in front of it."""

    def __init__(
        self,
        settings: Settings,
        options: Options,
        backend: Backend,
        *,
        is_writable: bool = True,
        mirrors: Sequence[Mirror] = (),
    ) -> None:
        super().__init__(settings)
        self._options, self._backend, self._mirrors = options, backend, mirrors
        self._is_writable = is_writable
        capacity, idle = settings.session_capacity, settings.session_idle_seconds
        self._known: TTLCache[str, Stored] = TTLCache(capacity, idle)

    async def load(self, session_id: str) -> bytes | None:
        """What is stored last, or None. Raises `store_unavailable` and `session_corrupt`."""
        own = None if self._is_writable else await super().load(session_id)
        if own is not None:
            return own or None  # turns that a read-only store does not get; b"": they ended
        known = self._known.get(session_id)
        try:
            stored = await self._backend.load(session_id, known.revision if known else None)
        except Unavailable as error:
            raise StoreError("store_unavailable", detail=str(error)) from None
        self._known.pop(session_id, None)
        _loaded.set(stored)
        if stored is None:
            return None
        kept, most = known.snapshot if known else None, self._options.max_snapshot_bytes
        snapshot = kept if stored.snapshot is None else read_snapshot(stored.snapshot, most)
        if snapshot is None:
            raise await _to_its_end(self._set_aside(session_id, stored.revision))
        self._known[session_id] = Stored(stored.revision, snapshot)
        return snapshot

    async def save(self, session_id: str, snapshot: bytes) -> None:
        """Replace what `load` found; from here on a cancel comes too late.

        Raises `session_too_large`, `session_conflict` and `store_unavailable`.
        """
        if not self._is_writable:
            await super().save(session_id, snapshot)
        elif len(snapshot) > self._options.max_snapshot_bytes:
            raise StoreError("session_too_large", detail=f"{len(snapshot)} bytes")
        else:
            await _to_its_end(self._save(session_id, snapshot))
        for mirror in self._mirrors:
            mirror.put(session_id, snapshot)

    async def end(self, session_id: str) -> None:
        """Delete the session that `load` found. Raises `store_unavailable`.

        If it found none, a first turn may still run elsewhere, and is committed after the end.
        One of a read-only store stays there, and has ended for this process.
        """
        self._known.pop(session_id, None)
        found = _loaded.get() if self._is_writable else await super().load(session_id)
        try:
            if not self._is_writable:
                await super().save(session_id, b"")
            elif found:
                await _to_its_end(self._backend.end(session_id))
        except Unavailable as error:
            log.warning("session %s: not ended: %s", session_id, error)
            raise StoreError("store_unavailable", detail=str(error)) from None
        for mirror in self._mirrors if found else ():
            mirror.end(session_id)

    async def _save(self, session_id: str, snapshot: bytes) -> None:
        loaded = _loaded.get()
        expected = loaded.revision if loaded else None
        checkpoint = str(uuid7()) if self._options.checkpoints else None
        try:
            revision = await self._backend.save(session_id, snapshot, expected, checkpoint)
        except (Conflict, Unavailable) as error:
            revision = await self._revision_of(session_id, snapshot, error)
            if checkpoint:
                await self._backend.keep(session_id, snapshot, checkpoint)
        self._known[session_id] = Stored(revision, snapshot)

    async def _revision_of(
        self, session_id: str, snapshot: bytes, error: Conflict | Unavailable
    ) -> str | None:
        """The revision of what failed to be saved, if only the reply was lost; or raise."""
        try:
            if isinstance(error, Unavailable) and error.is_certain:
                raise error
            self._known.pop(session_id, None)
            stored = await self._backend.load(session_id)
            if stored is None or not is_same(stored.snapshot, snapshot):
                raise error
        except Conflict:
            raise StoreError("session_conflict") from None
        except Unavailable as last:
            if last is not error:  # and a retry would be answered with the turn that was kept
                log.error("session %s: a turn may be kept, but not remembered", session_id)
            raise StoreError("store_unavailable", detail=str(last)) from None
        return stored.revision

    async def _set_aside(self, session_id: str, revision: str | None) -> StoreError:
        """Put what cannot be read where nothing overwrites it, and return how the turn ends."""
        try:
            if not self._is_writable:
                raise Unavailable("the collection is read-only")
            where = await self._backend.set_aside(session_id, revision)
        except Conflict:
            return StoreError("session_conflict")
        except Unavailable as error:
            detail = f"what is stored cannot be read, and was not set aside: {error}"
            return StoreError("store_unavailable", detail=detail)
        log.error("session %s: what was stored cannot be read; it is now %s", session_id, where)
        return StoreError("session_corrupt", detail=where)


async def _to_its_end(work: Coroutine[Any, Any, Any]) -> Any:
    """Await what must not be half done; a cancel meanwhile counts as one that came too late."""
    task = asyncio.create_task(work)
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cast(asyncio.Task[Any], asyncio.current_task()).uncancel()
    return task.result()
