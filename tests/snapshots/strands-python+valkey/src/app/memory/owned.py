"""A store of the owner's in a turn: bounded when it is searched, and told what was committed."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from strands.memory import (
    AddMessagesContext,
    ExtractorContext,
    MemoryEntry,
    MemoryStore,
    ModelExtractor,
    SearchOptions,
)
from strands.models import Model
from strands.types.content import Message
from strands.types.tools import AgentTool

from ..contract import describe
from .recall import LONGEST_QUERY

log = logging.getLogger(__name__)
MOST = 5  # entries, if the store does not say
NUMBERS = count()  # of messages: a store may be shared by turns, and knows them by these


class Owned(MemoryStore):
    """What the SDK sees of a store: it is read. That it is written to is not the SDK's business,
    which would do so for turns that fail, too.
    """

    writable, extraction = False, None

    def __init__(self, store: MemoryStore, seconds: float) -> None:
        self.name, self.description = store.name, store.description
        self.max_search_results = store.max_search_results
        self.store, self._seconds, self._is_ready = store, seconds, False

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        """What fits a query. Never fails, and ends in time."""
        most = self.max_search_results or MOST
        most = min(most, (options or {}).get("max_search_results") or most)
        try:
            async with asyncio.timeout(self._seconds):
                await self._prepare()
                given = SearchOptions(max_search_results=most)
                return await self.store.search(query[-LONGEST_QUERY:], given)
        except TimeoutError:
            why = f"no answer within {self._seconds} s"
        except Exception as error:  # noqa: BLE001 (whatever it is, the turn goes on)
            why = describe(error)
        log.warning("nothing recalled from store %s: %s", self.name, why)
        return []

    def get_tools(self) -> list[AgentTool]:
        """The tools of the store."""
        return self.store.get_tools() if hasattr(self.store, "get_tools") else []

    def telling(self, messages: list[Message], model: Model) -> Callable[[], Awaitable[None]]:
        """What tells the store the messages of a turn, and again after a failure only the rest."""
        extraction: Any = getattr(self.store, "extraction", None)
        extractor = extraction.get("extractor") if isinstance(extraction, dict) else None
        if extractor is None and not _takes_messages(self.store):
            extractor = ModelExtractor()
        numbers = [next(NUMBERS) for _ in messages]
        said = [one for one in messages if any("text" in block for block in one["content"])]
        facts: deque[Any] | None = None

        async def tell() -> None:
            nonlocal facts
            await self._prepare()
            if extractor is None:
                await self.store.add_messages(messages, AddMessagesContext(numbers))
                return
            if facts is None:
                context = ExtractorContext(default_model=model)
                facts = deque(await extractor.extract(said, context))
            while facts:
                await self.store.add(facts[0].content, facts[0].metadata)
                facts.popleft()

        return tell

    async def _prepare(self) -> None:
        if not self._is_ready and hasattr(self.store, "initialize"):
            await self.store.initialize()
        self._is_ready = True


def _takes_messages(store: MemoryStore) -> bool:
    """Whether that is of the store's own, and not what it inherits."""
    return getattr(type(store), "add_messages", None) not in (None, MemoryStore.add_messages)
