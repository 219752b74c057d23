"""Copies sessions to another store, while turns run, and as often as it takes.

A copy has a seal: a digest of itself, which no longer fits once anything has changed it. So a later
run replaces copies that nobody has continued, and leaves all other sessions of that store alone.
"""

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from .base import Conflict, DurableStore, StoreUnavailable, Unsupported
from .snapshot import is_same, parse

SEAL = "copied"  # in the app_data of a snapshot
AT_ONCE = 8


@dataclass
class Copied:
    """What became of sessions, by their ids."""

    copied: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    continued: list[str] = field(default_factory=list)  # in the other store, so left alone
    ended: list[str] = field(default_factory=list)  # in the first store, after they were copied
    failed: dict[str, str] = field(default_factory=dict)  # and why


class Copy:
    """Copies sessions of one store to another one, each with its last `checkpoints`."""

    def __init__(
        self, source: DurableStore, target: DurableStore, checkpoints: int, *, ends: bool
    ) -> None:
        """`ends`: whether copies of sessions that have ended end, too."""
        self._source, self._target, self.report = source, target, Copied()
        self._checkpoints, self._ends, self._gate = checkpoints, ends, asyncio.Semaphore(AT_ONCE)

    async def run(self, ids: Iterable[str]) -> Copied:
        """Copy these sessions, or all if none is named. Raises StoreUnavailable, Unsupported."""
        if not (named := {*ids}):
            named = {*await self._source.sessions()}
            with suppress(Unsupported):  # then it is not known what has ended
                named |= {*await self._target.sessions()}
        await asyncio.gather(*map(self._try, sorted(named)))
        return self.report

    async def _try(self, id: str) -> None:
        async with self._gate:
            try:
                await self._copy(id)
            except (Conflict, StoreUnavailable) as error:
                self.report.failed[id] = str(error) or "another process changed it meanwhile"

    async def _copy(self, id: str) -> None:
        report, there = self.report, await self._target.load(id)
        stored = await self._source.load(id)
        if there and not _is_copy(there.snapshot):
            report.continued += [id] if stored else []
            return
        if stored is None:
            report.ended += [id] if there else []
            if there and self._ends:
                await self._target.end(id)
            return
        snapshot = _sealed(stored.snapshot)
        if snapshot is None:
            report.failed[id] = "it is unreadable"
            return
        if there and is_same(there.snapshot, snapshot):
            report.same.append(id)
            return
        revision = there.revision if there else None
        known = await self._source.checkpoints(id) if self._checkpoints else []
        for name in known[-self._checkpoints :]:
            earlier = _sealed(await self._source.load_checkpoint(id, name) or b"")
            if earlier and there:  # an earlier turn must not be the latest again
                await self._target.save_checkpoint(id, earlier, name)
            elif earlier:  # some stores keep a checkpoint only with a save
                revision = await self._target.save(id, earlier, revision, name)
        await self._target.save(id, snapshot, revision)
        report.copied.append(id)


def _is_copy(snapshot: bytes) -> bool:
    value = parse(snapshot)
    try:
        return bool(value["app_data"].pop(SEAL, None) == _seal_of(value))
    except (TypeError, KeyError, AttributeError):
        return False


def _sealed(snapshot: bytes) -> bytes | None:
    """Return the snapshot of a copy, or None if it is not one of a session."""
    value = parse(snapshot)
    try:
        value["app_data"].pop(SEAL, None)
        value["app_data"][SEAL] = _seal_of(value)
    except (TypeError, KeyError, AttributeError):
        return None
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _seal_of(value: Any) -> str:
    # Without what a store may add.
    parts = [value.get("created_at"), value["data"]["messages"], value["app_data"]]
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
