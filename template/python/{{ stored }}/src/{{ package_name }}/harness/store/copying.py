"""Copies sessions to another store, repeatedly and while turns run.

Each copy carries a seal: a digest of its content. A turn that continues the copy breaks the seal.
A later run therefore replaces copies with an intact seal, and leaves all other sessions unchanged.
"""

import asyncio
import json
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from .base import NO_FILES, Conflict, DurableStore, Files, StoreUnavailable, Unsupported
from .detached_files import names_in
from .snapshot import is_same, parse

SEAL = "copied"  # in the app_data of a snapshot
OPEN_WORK = "it has open work, which both agents would do: copy it again after that"
CONCURRENCY = 8


@dataclass
class CopyReport:
    """The ids of sessions, by result."""

    copied: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    continued: list[str] = field(default_factory=list)  # in the target, so not overwritten
    ended: list[str] = field(default_factory=list)  # in the source, after the last copy
    failed: dict[str, str] = field(default_factory=dict)  # reasons by id


class Copy:
    """Copies sessions from one store to another, each with its last `checkpoints`."""

    def __init__(
        self, source: DurableStore, target: DurableStore, checkpoints: int, *, ends: bool
    ) -> None:
        """`ends`: whether to end copies of ended sessions."""
        self.report = CopyReport()
        self._source = source
        self._target = target
        self._checkpoints = checkpoints
        self._ends = ends
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def run(self, ids: Iterable[str]) -> CopyReport:
        """Copy these sessions, or all if `ids` is empty. Raises StoreUnavailable, Unsupported."""
        if not (named := {*ids}):
            named = {*await self._source.sessions()}
            with suppress(Unsupported):  # without a list, ended sessions stay undetected
                named |= {*await self._target.sessions()}
        await asyncio.gather(*map(self._try_copy, sorted(named)))
        return self.report

    async def _try_copy(self, id: str) -> None:
        async with self._slots:
            try:
                await self._copy(id)
            except (Conflict, StoreUnavailable) as error:
                self.report.failed[id] = str(error) or "another process changed it during the copy"

    async def _copy(self, id: str) -> None:
        report = self.report
        copy = await self._target.load(id)
        stored = await self._source.load(id)
        if copy and not _is_copy(copy.snapshot):
            report.continued += [id] if stored else []
            return
        if stored is None:
            report.ended += [id] if copy else []
            if copy and self._ends:
                await self._target.end(id)
            return
        snapshot = _sealed(stored.snapshot)
        if snapshot is None:
            report.failed[id] = "it is unreadable"
            return
        if _has_open_work(snapshot):
            report.failed[id] = OPEN_WORK
            return
        if copy and is_same(copy.snapshot, snapshot):
            report.unchanged.append(id)
            return
        revision = copy.revision if copy else None
        checkpoints = dict[str, bytes]()
        names = await self._source.checkpoints(id) if self._checkpoints else []
        for name in names[-self._checkpoints :]:
            if earlier := _sealed(await self._source.load_checkpoint(id, name) or b""):
                checkpoints[name] = earlier
        present = names_in(copy.snapshot) if copy else []
        files = await self._load_files(id, [snapshot, *checkpoints.values()], present)
        for name, earlier in checkpoints.items():
            if copy:  # a save would make the earlier turn the latest
                await self._target.save_checkpoint(id, earlier, name)
            else:  # some stores create a checkpoint only with a save
                revision = await self._target.save(id, earlier, revision, name, files)
                files = NO_FILES
        await self._target.save(id, snapshot, revision, files=files)
        await self._target.trim_files(id, [*{*present} - {*names_in(snapshot)}])
        report.copied.append(id)

    async def _load_files(self, id: str, snapshots: list[bytes], present: list[str]) -> Files:
        """Return the files of snapshots that are not yet present in the target."""
        names = {name for snapshot in snapshots for name in names_in(snapshot)} - {*present}
        return await self._source.load_files(id, [*names]) if names else NO_FILES


def _is_copy(snapshot: bytes) -> bool:
    value = parse(snapshot)
    try:
        return bool(value["app_data"].pop(SEAL, None) == _seal_of(value))
    except (TypeError, KeyError, AttributeError, OverflowError):
        return False


def _sealed(snapshot: bytes) -> bytes | None:
    """Return the snapshot with a new seal, or None if it is unreadable."""
    value = parse(snapshot)
    try:
        value["app_data"].pop(SEAL, None)
        value["app_data"][SEAL] = _seal_of(value)
    except (TypeError, KeyError, AttributeError, OverflowError):
        return None
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _has_open_work(snapshot: bytes) -> bool:
    """Whether the agent still has work to do for the session, which its copy would repeat."""
    records = json.loads(snapshot)["app_data"].get("records", {})
    return any(record.get("open") for record in records.values())


def _seal_of(value: Any) -> str:
    """Return a digest of the fields that a store returns unchanged, equal in all languages."""
    parts = [value.get("created_at"), value["data"]["messages"], value["app_data"]]
    text = json.dumps(_portable(parts), ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def _portable(value: Any) -> Any:
    """Return JSON that all languages write in the same way.

    Numbers become their bytes, and mappings become pairs, sorted by UTF-16 code units.
    """
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return [[name, _portable(value[name])] for name in names]
    if isinstance(value, list):
        return [*map(_portable, value)]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return struct.pack(">d", value + 0.0).hex()  # TypeScript writes -0.0 as 0
    return value
