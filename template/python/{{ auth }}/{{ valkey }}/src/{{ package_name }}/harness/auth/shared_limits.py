"""Limits that all replicas share, as a capability: the counters are in the session store."""

from collections.abc import Sequence
from functools import cached_property

from ..capability import Capability, Runtime
from ..modules import LoadModules
from ..settings import CoreSettings
from ..store.base import StoreUnavailable
from ..store.capability import Store
from ..store.valkey import ValkeyStore
from .capability import Auth
from .limits import CountersUnavailable

# ARGV: the number to add, and the seconds to live.
ADD = """
local number = redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return number
"""


class SharedLimits(Capability):
    """Keeps the counters in Valkey, if it is configured."""

    def __init__(
        self, settings: CoreSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self._before = before

    async def open(self, runtime: Runtime) -> None:
        if self.store:
            Auth.find(self._before).limits.counters = self

    @cached_property
    def store(self) -> ValkeyStore | None:
        """A separate connection to the store of the sessions."""
        store = Store.find(self._before)
        connected = store.connect(store.collection) if store.durable and store.collection else None
        return connected if isinstance(connected, ValkeyStore) else None

    async def add(self, name: str, number: int, seconds: int) -> int:
        key = f"limits:{name}:agent:{Store.find(self._before).project.agent_id}"
        try:
            assert self.store
            return int(await self.store.evaluate(ADD, [key], number, seconds))
        except StoreUnavailable as error:
            raise CountersUnavailable(str(error)) from None

    async def close(self) -> None:
        if self.store:
            await self.store.close()
