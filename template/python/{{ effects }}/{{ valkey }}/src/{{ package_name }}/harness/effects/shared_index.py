"""The sessions with open effects, in Valkey: any process continues the effects of an ended one.

A sorted set contains the session ids; the score is the time, in Unix seconds, at which a process
looks at the session. The claims in the sessions decide which process runs their effects.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection, Sequence
from functools import cached_property
from typing import Any, cast

from ..capability import Capability, Runtime
from ..collections.erasure import Stock, for_each
from ..collections.session_backend import ValkeyConfig
from ..contract import AgentError
from ..log import log_unexpected
from ..modules import LoadModules
from ..settings import CoreSettings
from ..store.base import StoreUnavailable
from ..store.capability import Store
from ..store.valkey import ValkeyStore
from .capability import Effects

log = logging.getLogger(__name__)
POLL_SECONDS = 2
AGAIN_SECONDS = 5  # until the next look at a session
BATCH = 16

ADD = "return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])"
# ARGV: session, score. Another process may have added the session since.
REMOVE = """
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if score and tonumber(score) == tonumber(ARGV[2]) then redis.call('ZREM', KEYS[1], ARGV[1]) end
return 1
"""
# ARGV: now, next score, maximum number. Only one process gets a session.
TAKE = """
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])
for _, id in ipairs(ids) do redis.call('ZADD', KEYS[1], ARGV[2], id) end
return ids
"""
ALL = "return redis.call('ZRANGE', KEYS[1], 0, -1)"
DISCARD = "return redis.call('ZREM', KEYS[1], ARGV[1])"


class EffectIndex(Capability):
    """Lets any process that shares the Valkey continue the effects of a session."""

    def __init__(
        self, settings: CoreSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self._before = before
        self._scores: dict[str, float] = {}  # that this process has set
        self._empty: dict[str, float] = {}  # since when a session has no open effects
        self._polling: asyncio.Task[None] | None = None

    @property
    def closes_last(self) -> bool:
        return True

    @cached_property
    def store(self) -> ValkeyStore | None:
        """A separate connection to the store of the sessions."""
        store = Store.find(self._before)
        connected = store.connect(store.collection) if store.durable and store.collection else None
        return connected if isinstance(connected, ValkeyStore) else None

    async def open(self, runtime: Runtime) -> None:
        if self.store:
            Effects.find(self._before).outbox.index = self
            self._polling = asyncio.create_task(self._poll())

    async def close(self) -> None:
        if self._polling:
            self._polling.cancel()
        if self.store:
            await self.store.close()

    def project_stocks(self, unshared: Collection[str]) -> list[Stock]:
        """Return the sessions in the index."""
        store = self.store
        if store is None or not Store.find(self._before).is_writable:
            return []

        async def pages() -> AsyncIterator[list[str]]:
            yield [id.decode() for id in await store.evaluate(ALL, [self._key])]

        async def discard(id: str) -> None:
            await store.evaluate(DISCARD, [self._key], id)

        async def delete(ids: list[str]) -> int:
            return await for_each(ids, discard)

        what = "sessions in the index of effects"
        return [Stock(what, store.contact, pages, delete, (StoreUnavailable,))]

    async def add(self, session_id: str, seconds: float) -> None:
        score = round(time.time() + seconds, 3)
        self._scores[session_id] = score
        await self._evaluate(ADD, self._key, score, session_id)

    async def remove(self, session_id: str) -> None:
        score = self._scores.pop(session_id, None)
        if score is not None:
            await self._evaluate(REMOVE, self._key, session_id, score)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 (the next poll may succeed)
                log_unexpected(error)

    async def _look(self) -> None:
        """Continue the effects of some sessions."""
        now = time.time()
        score = round(now + AGAIN_SECONDS, 3)
        # Another process may have removed a session that had no open effects here.
        oldest = time.monotonic() - 2 * self.settings.turn_timeout_seconds
        self._empty = {id: since for id, since in self._empty.items() if since > oldest}
        for id in await self._evaluate(TAKE, self._key, now, score, BATCH) or []:
            try:
                await self._look_at(id.decode(), score)
            except Exception as error:  # noqa: BLE001 (a session must not stop the others)
                log_unexpected(error)

    async def _look_at(self, session_id: str, score: float) -> None:
        """Continue the effects of a session, or remove it if no turn can still schedule some."""
        outbox = Effects.find(self._before).outbox
        try:
            is_open = await outbox.has_open_calls(session_id)
        except AgentError as error:
            log.warning("session %s: effects wait: %s", session_id, error.type)
            return
        if is_open:
            self._empty.pop(session_id, None)
            outbox.watch(session_id)
            return
        since = self._empty.setdefault(session_id, time.monotonic())
        if time.monotonic() - since > self.settings.turn_timeout_seconds:
            del self._empty[session_id]
            await self._evaluate(REMOVE, self._key, session_id, score)

    async def _evaluate(self, script: str, key: str, *values: Any) -> Any:
        """Return the result of a script, or None if the store failed."""
        assert self.store
        # The client of Valkey can lose the cancellation of a task that connects.
        call = asyncio.create_task(self.store.evaluate(script, [key], *values))
        try:
            return await asyncio.shield(call)
        except StoreUnavailable as error:
            log.warning("the index of effects failed: %s", error)
            return None

    @property
    def _key(self) -> str:
        store = Store.find(self._before)
        assert store.collection
        prefix = cast(ValkeyConfig, store.collection.backend).key_prefix
        # Not the pattern of sessions, `<key_prefix>:<session_id>:agent:<agent_id>`.
        return f"{prefix}-effects:{store.project.agent_id}"
