"""Recall: searches the namespaces a turn may read, within a time limit."""

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
from .hits import Found, Hit, Shown, best
from .namespaces import Who, resolve
from .policy import MemoryPolicy

log = logging.getLogger(__name__)
Readers = Sequence[MemoryCollection]
MAX_QUERY_CHARS = 10_000  # UTF-16 units, as the service counts
MAX_RESULTS = 100  # records of one call


class MemoryTurn:
    """Long-term memory in one turn: what it recalls, and what it adds when it commits."""

    def __init__(
        self,
        who: Who,
        readers: Readers,
        *,
        warming: Sequence[asyncio.Task[None]] = (),
        policy: MemoryPolicy,
        seconds: float,
        overfetch: int = 4,
        writers: Sequence[str] = (),
        descriptions: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.who, self.readers, self.began = who, readers, datetime.now(UTC)
        self.policy = policy
        self.added: list[Utterance] = []
        self.shown = Shown()  # to the last model call
        self.recalled = list[str]()  # what all model calls were shown
        self.first: asyncio.Future[Sequence[Hit]] | None = None  # what is found for "userTurn"
        self.calls = 0  # of models
        self.stores: list[Any] = []  # of the owner
        self.is_over = False
        self.model: Any = None  # of the turn
        self._warming, self._seconds, self.writers = warming, seconds, writers
        # Factor of the results to request, as some are not relevant enough.
        self._overfetch = overfetch
        self.descriptions = descriptions  # of all collections, for models

    @property
    def targets(self) -> list[str]:
        """The names of the stores that a text can be added to."""
        return [*self.writers, *(store.name for store in self.stores if store.takes_texts)]

    def add(
        self, text: str, stores: Collection[str] | None = None, metadata: Metadata | None = None
    ) -> None:
        """Remember a text when the turn commits. Raises ValueError and RuntimeError."""
        if is_blank(text):
            raise ValueError("A blank text cannot be remembered.")
        if not self.targets:
            raise RuntimeError("This agent has no long-term memory that it may write to.")
        if self.is_over:
            raise RuntimeError("The turn is over.")
        if problem := metadata_problem(metadata or {}):
            raise ValueError(f"Metadata: {problem}.")
        names = None if stores is None else tuple(_known(stores, self.targets))
        self.added.append(Utterance("USER", text, metadata or {}, names, True))

    def end(self) -> list[Utterance]:
        """End a committed turn, and return the texts that it added."""
        self.is_over = True
        return self.added

    async def find(
        self,
        query: str,
        stores: Collection[str] | None = None,
        most: int | None = None,
        metadata: Metadata | None = None,
    ) -> Found:
        """Search stores by name, None for all, for at most `most` hits of each.

        Raises ValueError for an unknown store and what a search does not allow. A search by
        metadata knows no stores of the owner: they have no filter.
        """
        if most is not None and most < 1:
            raise ValueError("max_search_results must be at least 1.")
        if problem := filter_problem(metadata or {}):
            raise ValueError(f"Metadata: {problem}.")
        own = [] if metadata else self.stores
        known = [*(reader.id for reader in self.readers), *(store.name for store in own)]
        names = known if stores is None else _known(stores, known)
        readers = [reader for reader in self.readers if reader.id in names]
        found, counts = Found(), Counter[str]()
        all = await asyncio.gather(
            self.search(query, readers, metadata or {}, found.failures),
            *[store.hits(query, most, found.failures) for store in own if store.name in names],
        )
        for hit in best([hit for hits in all for hit in hits]):
            counts[hit.collection] += 1
            if most is None or counts[hit.collection] <= most:
                found.append(hit)
        return found

    async def search(
        self,
        query: str,
        readers: Readers | None = None,
        metadata: Metadata = NOTHING,
        failures: dict[str, str] | None = None,
    ) -> list[Hit]:
        """Return memories that match the end of a query, best first, within the timeout.

        Never raises: a memory that fails or is late is left out, logged, and added to `failures`.
        """
        failures = {} if failures is None else failures
        units = query.encode("utf-16-le", "surrogatepass")[-2 * MAX_QUERY_CHARS :]
        query = units.decode("utf-16-le", "ignore")
        if is_blank(query):
            return []
        if self._warming:  # the first turn must not lose its memories to an import
            await asyncio.wait(self._warming)
        end = asyncio.get_running_loop().time() + self._seconds
        readers = self.readers if readers is None else readers
        found = await asyncio.gather(
            *[self._read(reader, query, end, metadata, failures) for reader in readers]
        )
        return best([hit for hits in found for hit in hits])

    async def _read(
        self,
        reader: MemoryCollection,
        query: str,
        end: float,
        metadata: Metadata,
        failures: dict[str, str],
    ) -> list[Hit]:
        namespaces: Namespaces = {}
        async with self._fail_open(reader.id, "its namespaces", end, failures):
            namespaces = await reader.traced.namespaces(reader)

        async def read(template: str, config: NamespaceConfig) -> list[Hit]:
            hits: list[Hit] = []
            async with self._fail_open(reader.id, template, end, failures):
                hits = await self._retrieve(reader, template, config, query, metadata)
            return hits

        found = await asyncio.gather(*[read(*item) for item in namespaces.items()])
        return [hit for hits in found for hit in hits]

    async def _retrieve(
        self,
        reader: MemoryCollection,
        template: str,
        config: NamespaceConfig,
        query: str,
        metadata: Metadata,
    ) -> list[Hit]:
        namespace, wanted = resolve(template, self.who), {**metadata, **config.metadata}
        if not metadata.items() <= wanted.items():
            return []  # the file wants another value
        if len(wanted) > MAX_FILTERS:
            raise MemoryUnavailable(f"with the metadata of its file, more than {MAX_FILTERS} keys")
        limit = min(MAX_RESULTS, self._overfetch * config.top_k)
        records = await reader.traced.retrieve(self.who, namespace, query, limit, wanted)
        return [
            Hit(**vars(record) | {"collection": reader.id})
            for record in sorted(records, key=lambda record: -record.score)
            if record.score >= config.relevance_score
            and not is_blank(record.text)
            and namespace.holds(record.namespace)
        ][: config.top_k]

    @asynccontextmanager
    async def _fail_open(
        self, id: str, where: str, end: float, failures: dict[str, str]
    ) -> AsyncIterator[None]:
        try:
            async with time_limit(end - asyncio.get_running_loop().time()):
                yield
            return
        except TimeoutError:
            why = f"no answer within {self._seconds} s"
        except Exception as error:  # noqa: BLE001 (the turn goes on, whatever the error)
            why = describe_failure(error)
        log.warning("nothing recalled from %s, %s: %s", id, where, why)
        failures[id] = f"{where}: {why}"


current: ContextVar[MemoryTurn] = ContextVar("turn")  # inherited by the tools of the turn


def _known(stores: Collection[str], known: Collection[str]) -> list[str]:
    if not stores:
        raise ValueError("No store is named: name one, or leave stores out for all.")
    for name in stores:
        if name not in known:
            raise ValueError(f"There is no store {name} here, only {', '.join(known) or 'none'}.")
    return [*stores]
