"""Erase all data of this project from its stores and memories."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

BATCH = 100  # items per deletion
CONCURRENCY = 8
MAX_LISTS = 5  # until the list is empty: a running agent may add items
UNCOUNTED = "cannot be counted"
AGAIN = "stop the agent, and run this again"
REMAINS = (
    "These remain: the servers, buckets and memory resources, their backups and logs, and copies "
    "of sessions in other places."
)
RUNNING = "Stop the agent first: a running agent can store new data during the erasure."


@dataclass(frozen=True)
class Stock:
    """Data of this project in one place, as items with unique names."""

    what: str  # a plural, such as "sessions"
    where: str  # the server or service, without secrets
    pages: Callable[[], AsyncIterator[list[str]]]  # the names of all items
    delete: Callable[[list[str]], Awaitable[int]]  # returns the number of deleted items
    failures: tuple[type[Exception], ...] = ()  # errors of both, safe to print
    stays_because: str = ""  # why this command does not erase the items
    note: str = ""  # about the time after the erasure

    @property
    def name(self) -> str:
        """The items and their place, for messages."""
        return f"{self.what} in {self.where}"

    async def count(self) -> int:
        """Return the number of items. Raises `failures`."""
        return sum([len(page) async for page in self.pages()])


@runtime_checkable
class Keeper(Protocol):
    """A capability that keeps data outside the process."""

    def project_stocks(self, unshared: Collection[str]) -> list[Stock]:
        """Return all data of this project, without network calls.

        `unshared` are the collections whose memory no other project uses.
        """

    async def close(self) -> None:
        """Disconnect."""


async def for_each(names: Iterable[str], work: Callable[[str], Awaitable[object]]) -> int:
    """Run `work` for each name, some at a time; return the number of names."""
    slots = asyncio.Semaphore(CONCURRENCY)

    async def run(name: str) -> None:
        async with slots:
            await work(name)

    results = await asyncio.gather(*map(run, names), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return len(results)


def nothing(what: str, where: str) -> Stock:
    """Return a stock without items, to show that nothing is stored there."""

    async def pages() -> AsyncIterator[list[str]]:
        yield []

    async def delete(_: list[str]) -> int:
        return 0

    return Stock(what, where, pages, delete)


@dataclass
class Place:
    """A stock, the number of its items, and the last failure."""

    stock: Stock
    found: int = 0
    erased: int = 0
    failure: str = ""


class ProjectErasure:
    """Counts and erases all stocks of a project."""

    def __init__(self, keepers: Sequence[Any], unshared: Collection[str]) -> None:
        self.places = [
            Place(stock) for keeper in keepers for stock in keeper.project_stocks(unshared)
        ]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to erase, as far as the stores can tell."""
        erasable = [place for place in self.places if not place.stock.stays_because]
        return not any(place.found or place.failure for place in erasable)

    @property
    def has_remains(self) -> bool:
        """Whether data remains."""
        return any(place.failure or _stays(place) for place in self.places)

    async def count(self) -> list[str]:
        """Count all items, and return lines about them."""
        for place in self.places:
            place.found = await self._count(place)
        lines = [f"  {_found(place)}" for place in self.places if not place.stock.stays_because]
        return [*lines, *self._staying()]

    async def erase(self) -> list[str]:
        """Erase all items, and return lines about the erased and the remaining data."""
        for place in self.places:
            if not place.stock.stays_because:
                await self._erase(place)
        # A running agent may have stored new items since.
        for place in self.places:
            place.found = await self._count(place)
            if place.found and not place.stock.stays_because:
                remaining = f"{place.found} remain"
                place.failure = f"{remaining}: {place.failure or AGAIN}"
        done = [place for place in self.places if place.erased]
        lines = [f"{place.erased} {place.stock.name} erased" for place in done]
        failed = [place for place in self.places if place.failure]
        lines += [f"failed: {place.stock.name}: {place.failure}" for place in failed]
        notes = [f"note: {place.stock.note}" for place in done if place.stock.note]
        return [*lines, *self._staying(), *dict.fromkeys(notes)]

    async def _count(self, place: Place) -> int:
        """Return the number of items; 1 if any stay. Keeps an earlier failure."""
        try:
            if not place.stock.stays_because:
                return await place.stock.count()
            async for page in place.stock.pages():
                if page:
                    return 1
        except place.stock.failures as error:
            place.failure = place.failure or str(error)
        return 0

    async def _erase(self, place: Place) -> None:
        place.failure = ""
        try:
            for _ in range(MAX_LISTS):
                names = [name async for page in place.stock.pages() for name in page]
                for at in range(0, len(names), BATCH):
                    place.erased += await place.stock.delete(names[at : at + BATCH])
                if not names:
                    return
        except place.stock.failures as error:
            place.failure = str(error)

    def _staying(self) -> list[str]:
        staying = [place.stock for place in self.places if _stays(place)]
        return [f"not erased: {stock.name}: {stock.stays_because}" for stock in staying]


def _found(place: Place) -> str:
    if place.failure:
        return f"{place.stock.name}, which {UNCOUNTED}: {place.failure}"
    return f"{place.found} {place.stock.name}"


def _stays(place: Place) -> bool:
    return bool(place.stock.stays_because and place.found)
