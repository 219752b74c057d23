"""What a turn recalls: the best records of all namespaces that are read, soon or not at all."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ..contract import describe, is_blank
from .backends import Unavailable
from .memories import Memory
from .models import Namespace
from .namespaces import Place, Who, resolve

log = logging.getLogger(__name__)
LONGEST_QUERY = 10_000  # UTF-16 units, as the service counts
MOST = 100  # records of one call
SPARE = 4  # times as many as are wanted: some are not relevant enough
LONGEST_BLOCK = 20_000  # characters
ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


@dataclass(frozen=True)
class Found:
    """What is remembered, how well it fits (0 to 1), and where it was found."""

    text: str
    score: float
    namespace: str
    collection: str
    created_at: str
    id: str


@dataclass
class Reader:
    """A collection that is read. `declared` is None when the resource says which namespaces."""

    collection_id: str
    lifetime: str
    memory: Memory
    declared: dict[str, Namespace] | None

    async def namespaces(self) -> dict[str, Namespace]:
        """What is wanted of each namespace, by its template. Raises Unavailable."""
        if self.declared is None:
            strategies = (await self.memory.describe()).get("strategies", [])
            found = (template for one in strategies for template in _templates(one))
            is_own = self.lifetime == "user"  # then the others would be shared by people
            templates = [one for one in found if not is_own or "{actorId}" in one]
            self.declared = {template: Namespace() for template in templates} or None
        return self.declared or {}


# What one place has for a query, as its namespace wants it; raises Unavailable.
Retrieve = Callable[[Reader, Place, Namespace, str], Awaitable[list[Found]]]


class Recall:
    """What one turn recalls. A memory that fails or is late is left out, with a line in the log."""

    def __init__(self, who: Who, readers: Sequence[Reader], seconds: float) -> None:
        self.who, self.readers, self._seconds = who, readers, seconds
        self._first: asyncio.Task[list[Found]] | None = None

    async def once(self, query: str) -> list[Found]:
        """The recall of the turn: however many of its steps ask, it searches for the first only."""
        if self._first is None:
            self._first = asyncio.create_task(self.search(query))
        return await asyncio.shield(self._first)

    async def search(
        self, query: str, readers: Sequence[Reader] | None = None, ask: Retrieve | None = None
    ) -> list[Found]:
        """What fits the end of a query, best first. Never fails, and ends in time."""
        units = query.encode("utf-16-le", "surrogatepass")[-2 * LONGEST_QUERY :]
        query, ask = units.decode("utf-16-le", "ignore"), ask or retrieve
        if is_blank(query):
            return []
        end = asyncio.get_running_loop().time() + self._seconds
        readers = self.readers if readers is None else readers
        read = await asyncio.gather(*[self._read(one, query, end, ask) for one in readers])
        best: dict[str, Found] = {}
        for found in sorted((one for some in read for one in some), key=lambda one: -one.score):
            best.setdefault(found.text, found)
        return list(best.values())

    async def _read(self, reader: Reader, query: str, end: float, ask: Retrieve) -> list[Found]:
        namespaces: dict[str, Namespace] = {}
        async with self._in_time(end, reader, "its namespaces"):
            namespaces = await reader.namespaces()

        async def read(template: str, wanted: Namespace) -> list[Found]:
            async with self._in_time(end, reader, template):
                return await ask(reader, resolve(template, self.who), wanted, query)
            return []

        found = await asyncio.gather(*[read(*one) for one in namespaces.items()])
        return [one for some in found for one in some]

    @asynccontextmanager
    async def _in_time(self, end: float, reader: Reader, what: str) -> AsyncIterator[None]:
        where, why = f"{reader.collection_id}, {what}", ""
        try:
            async with asyncio.timeout_at(end):
                yield
        except TimeoutError:
            why = f"no answer within {self._seconds} s"
        except Unavailable as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 (whatever it is, the turn goes on)
            why = describe(error)
        if why:
            log.warning("nothing recalled from %s: %s", where, why)


async def retrieve(reader: Reader, place: Place, wanted: Namespace, query: str) -> list[Found]:
    """What one place has for a query, as its namespace wants it. Raises Unavailable."""
    count = min(MOST, SPARE * wanted.top_k)
    records = await reader.memory.retrieve(place, query, count)
    return [
        Found(one.text, one.score, one.namespace, reader.collection_id, one.created_at, one.id)
        for one in sorted(records, key=lambda one: -one.score)
        if one.score >= wanted.relevance_score and not is_blank(one.text)
        if place.holds(one.namespace)
    ][: wanted.top_k]


def block(found: Sequence[Found]) -> str:
    """What was found as text for a model, or ""; what does not fit in its length is left out."""
    lines, length = ["<memory>"], len("<memory>\n</memory>")
    for one in found:
        source, text = one.collection.translate(ESCAPES), one.text.translate(ESCAPES)
        line = f'<entry source="{source}">{text}</entry>'
        if length + len(line) + 1 <= LONGEST_BLOCK:
            lines.append(line)
            length += len(line) + 1
    return "\n".join([*lines, "</memory>"]) if len(lines) > 1 else ""


def _templates(strategy: dict[str, Any]) -> list[str]:
    """The templates of a strategy; the keys of the service are in lower case only."""
    templates = strategy.get("namespaceTemplates") or strategy.get("namespaces") or []
    own = {"{memoryStrategyId}": strategy["strategyId"], "{projectid}": "{projectId}"}
    for name, value in own.items():
        templates = [template.replace(name, value) for template in templates]
    return templates
