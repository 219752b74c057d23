"""Recall memories: search the namespaces of a turn, within a time limit."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from ..collections.memory_backend import (
    MAX_FILTERS,
    NamespaceConfig,
    filter_problem,
    metadata_problem,
)
from ..contract import is_blank
from ..deadline import time_limit
from .base import (
    NOTHING,
    MemoryCollection,
    MemoryUnavailable,
    Metadata,
    Namespaces,
    Utterance,
    describe_failure,
)
from .hits import Found, Hit, Injection, best
from .namespaces import Who, resolve
from .policy import MemoryPolicy

log = logging.getLogger(__name__)
Readers = Sequence[MemoryCollection]
MAX_QUERY_CHARS = 10_000  # UTF-16 units, as in AgentCore
MAX_RESULTS = 100  # records per call


class MemoryTurn:
    """The long-term memory of one turn: its searches, and the texts to store when it commits."""

    def __init__(
        self,
        identity: Who,
        readers: Readers,
        *,
        warming: Sequence[asyncio.Task[None]] = (),
        policy: MemoryPolicy,
        seconds: float,
        overfetch: int = 4,
        writers: Sequence[str] = (),
        descriptions: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.identity = identity
        self.readers = readers
        self.started_at = datetime.now(UTC)
        self.policy = policy
        self.added: list[Utterance] = []
        self.injection = Injection()  # of the last model call
        self.recalled = list[str]()  # the texts of memories shown to any model call
        # The search that all model calls share.
        self.shared_search: asyncio.Future[Sequence[Hit]] | None = None
        self.calls = 0  # model calls so far
        self.stores: list[Any] = []  # those of the project's own policy
        self.is_over = False
        self.model: Any = None  # the turn's model
        self._warming = warming
        self._seconds = seconds
        self.writers = writers
        # Request more results by this factor: some are below the relevance score.
        self._overfetch = overfetch
        self.descriptions = descriptions  # of the collections, for models

    @property
    def targets(self) -> list[str]:
        """The names of the stores that accept texts."""
        return [*self.writers, *(store.name for store in self.stores if store.takes_texts)]

    def add(
        self, text: str, stores: Collection[str] | None = None, metadata: Metadata | None = None
    ) -> None:
        """Queue text to store when the turn commits.

        Raises ValueError for invalid values, and RuntimeError if no memory is writable or the turn
        is over.
        """
        if is_blank(text):
            raise ValueError("The text is blank: add a text with content.")
        if not self.targets:
            raise RuntimeError("This agent has no writable long-term memory.")
        if self.is_over:
            raise RuntimeError("The turn is over: add texts before it ends.")
        if problem := metadata_problem(metadata or {}):
            raise ValueError(f"Metadata: {problem}.")
        names = None if stores is None else tuple(_check_store_names(stores, self.targets))
        self.added.append(Utterance("USER", text, metadata or {}, names, True))

    def end(self) -> list[Utterance]:
        """End a committed turn, and return its added texts."""
        self.is_over = True
        return self.added

    async def find(
        self,
        query: str,
        stores: Collection[str] | None = None,
        limit: int | None = None,
        metadata: Metadata | None = None,
    ) -> Found:
        """Search stores by name (None: all), for at most `limit` hits per store.

        Raises ValueError for an unknown store and for invalid values. A search with metadata skips
        the stores of the project's own policy: they cannot filter.
        """
        if limit is not None and limit < 1:
            raise ValueError("max_search_results must be at least 1.")
        if problem := filter_problem(metadata or {}):
            raise ValueError(f"Metadata: {problem}.")
        stores_of_owner = [] if metadata else self.stores
        available = [
            *(reader.id for reader in self.readers),
            *(store.name for store in stores_of_owner),
        ]
        names = available if stores is None else _check_store_names(stores, available)
        readers = [reader for reader in self.readers if reader.id in names]
        found = Found()
        counts = Counter[str]()
        results = await asyncio.gather(
            self.search(query, readers, metadata or {}, found.failures),
            *[
                store.hits(query, limit, found.failures)
                for store in stores_of_owner
                if store.name in names
            ],
        )
        for hit in best([hit for hits in results for hit in hits]):
            counts[hit.collection] += 1
            if limit is None or counts[hit.collection] <= limit:
                found.append(hit)
        return found

    async def search(
        self,
        query: str,
        readers: Readers | None = None,
        metadata: Metadata = NOTHING,
        failures: dict[str, str] | None = None,
    ) -> list[Hit]:
        """Search with the last MAX_QUERY_CHARS characters of a query, within the time limit.

        Return hits, best first. Never raises: a failed or late memory is skipped, logged, and added
        to `failures`.
        """
        failures = {} if failures is None else failures
        units = query.encode("utf-16-le", "surrogatepass")[-2 * MAX_QUERY_CHARS :]
        query = units.decode("utf-16-le", "ignore")
        if is_blank(query):
            return []
        if self._warming:  # slow imports must not count against the first turn's time limit
            await asyncio.wait(self._warming)
        end = asyncio.get_running_loop().time() + self._seconds
        readers = self.readers if readers is None else readers
        results = await asyncio.gather(
            *[self._search_collection(reader, query, end, metadata, failures) for reader in readers]
        )
        return best([hit for hits in results for hit in hits])

    async def _search_collection(
        self,
        reader: MemoryCollection,
        query: str,
        end: float,
        metadata: Metadata,
        failures: dict[str, str],
    ) -> list[Hit]:
        namespaces: Namespaces = {}
        async with self._fail_open(reader.id, "list the namespaces", end, failures):
            namespaces = await reader.traced.namespaces(reader)

        async def search_namespace(template: str, config: NamespaceConfig) -> list[Hit]:
            hits: list[Hit] = []
            async with self._fail_open(reader.id, f"search namespace {template}", end, failures):
                hits = await self._retrieve(reader, template, config, query, metadata)
            return hits

        results = await asyncio.gather(*[search_namespace(*item) for item in namespaces.items()])
        return [hit for hits in results for hit in hits]

    async def _retrieve(
        self,
        reader: MemoryCollection,
        template: str,
        config: NamespaceConfig,
        query: str,
        metadata: Metadata,
    ) -> list[Hit]:
        namespace = resolve(template, self.identity)
        filters = {**metadata, **config.metadata}
        if not metadata.items() <= filters.items():
            # The collection file requires a different value for this key, so nothing can match.
            return []
        if len(filters) > MAX_FILTERS:
            problem = f"with the metadata of its file, the search has over {MAX_FILTERS} keys"
            raise MemoryUnavailable(problem)
        limit = min(MAX_RESULTS, self._overfetch * config.top_k)
        records = await reader.traced.retrieve(self.identity, namespace, query, limit, filters)
        return [
            Hit(**vars(record) | {"collection": reader.id})
            for record in sorted(records, key=lambda record: -record.score)
            if record.score >= config.relevance_score
            and not is_blank(record.text)
            and namespace.holds(record.namespace)
        ][: config.top_k]

    @asynccontextmanager
    async def _fail_open(
        self, id: str, task: str, end: float, failures: dict[str, str]
    ) -> AsyncIterator[None]:
        try:
            async with time_limit(end - asyncio.get_running_loop().time()):
                yield
            return
        except TimeoutError:
            reason = f"no answer within {self._seconds} s"
        except Exception as error:  # noqa: BLE001 (the turn continues after any error)
            reason = describe_failure(error)
        log.warning("could not %s of %s: %s", task, id, reason)
        failures[id] = f"could not {task}: {reason}"


# The MemoryTurn of the running turn, for its tools, too.
turn_context: ContextVar[MemoryTurn] = ContextVar("turn")


def _check_store_names(names: Collection[str], available: Collection[str]) -> list[str]:
    """Return `names`. Raises ValueError if it is empty or has an unknown store."""
    if not names:
        raise ValueError("The list of stores is empty: name a store, or omit stores to use all.")
    for name in names:
        if name not in available:
            options = ", ".join(available) or "none"
            raise ValueError(f"Store {name} does not exist; available stores: {options}.")
    return [*names]
