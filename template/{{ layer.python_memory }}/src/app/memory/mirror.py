"""Copies of committed snapshots for a further collection, written beside the turns."""

import asyncio
import json
import logging
from contextlib import suppress

from ..contract import describe
from .backends import Backend, Conflict, Unavailable
from .snapshots import read_snapshot

log = logging.getLogger(__name__)
SESSIONS, BYTES = 1000, 100_000_000  # that may wait
ATTEMPTS, LONGEST_PAUSE, CLOSING = 8, 30, 5  # the latter two in seconds


class Mirror:
    """Writes the newest snapshot of each session, one at a time, and tries again when it fails.

    A turn never waits for it nor fails by it. What does not fit is dropped, and the log says so;
    the next turn of that session brings the copy up to date. An end comes before what follows it.
    """

    def __init__(self, store: Backend, most: int) -> None:
        """`most` is the number of bytes up to which a copy can be read."""
        self._store, self.contact, self._most = store, store.contact, most
        # What is to be done for each session, in order: None deletes its copy.
        self._waiting: dict[str, list[bytes | None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    @property
    def is_waiting(self) -> bool:
        """Whether something is still to be written."""
        return self._task is not None and not self._task.done()

    def put(self, session_id: str, snapshot: bytes) -> None:
        """Take what a turn committed."""
        ends = [step for step in self._waiting.get(session_id, []) if step is None]
        self._take(session_id, [*ends, snapshot])

    def end(self, session_id: str) -> None:
        """Take that a session ended."""
        self._take(session_id, [None])

    async def close(self) -> None:
        """Try once more to write what waits, for some seconds, and close the store."""
        self._closing.set()
        if self._task:
            await asyncio.wait([self._task], timeout=CLOSING)
            self._task.cancel()
        for session_id in list(self._waiting):
            self._drop(session_id, "the process ends")
        await self._store.close()

    def _take(self, session_id: str, steps: list[bytes | None]) -> None:
        self._waiting.pop(session_id, None)
        self._waiting[session_id] = steps
        if self._closing.is_set():
            return self._drop(session_id, "the process ends")
        sizes = {id: len(waiting[-1] or b"") for id, waiting in self._waiting.items()}
        while len(sizes) > 1 and (len(sizes) > SESSIONS or sum(sizes.values()) > BYTES):
            oldest = next(iter(sizes))
            del sizes[oldest]
            self._drop(oldest, f"too many wait for {self.contact}")
        if not self.is_waiting:
            self._task = asyncio.create_task(self._run())
        return None

    def _drop(self, session_id: str, why: str) -> None:
        del self._waiting[session_id]
        log.warning("session %s: not copied: %s", session_id, why)

    async def _run(self) -> None:
        failed = 0  # attempts in a row
        while self._waiting:
            session_id, (step, *_) = next(iter(self._waiting.items()))
            why = ""
            try:
                await self._write(session_id, step)
            except Conflict:
                why = "another instance wrote"  # so look again which copy is the newer one
            except Unavailable as error:
                why = str(error)
            except (ValueError, TypeError, KeyError, RuntimeError) as error:
                why, failed = describe(error), ATTEMPTS
            failed = failed + 1 if why else 0
            if 0 < failed < ATTEMPTS and not self._closing.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(2**failed / 2, LONGEST_PAUSE)):
                        await self._closing.wait()
                continue
            failed = 0
            steps = self._waiting.get(session_id, [])
            if steps[:1] != [step]:
                continue  # meanwhile something newer took its place
            if why:
                self._drop(session_id, why)
            elif steps[1:]:
                steps.pop(0)
            else:
                del self._waiting[session_id]

    async def _write(self, session_id: str, snapshot: bytes | None) -> None:
        if snapshot is None:
            return await self._store.end(session_id)
        stored = await self._store.load(session_id)
        copy = read_snapshot(stored.snapshot or b"", self._most) if stored else None
        if copy and _is_newer(copy, snapshot):
            return None
        if stored and copy is None:  # it cannot be read, and is not overwritten
            await self._store.set_aside(session_id, stored.revision)
            stored = None
        await self._store.save(session_id, snapshot, stored.revision if stored else None)
        return None


def _is_newer(copy: bytes, snapshot: bytes) -> bool:
    """Whether the copy is of a later turn: by number and by time, as a restore counts anew."""
    one, other = json.loads(copy), json.loads(snapshot)
    is_later = one["app_data"]["turn"] > other["app_data"]["turn"]
    return bool(is_later and one["created_at"] >= other["created_at"])
