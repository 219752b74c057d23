"""Erase all data of this project from its stores and memories."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

BATCH = 100  # items per deletion
CONCURRENCY = 8
MAX_USELESS = 2  # batches in a row that fail without a deletion: the place is down
MAX_LISTS = 5  # until the list is empty: a running agent may add items
UNCOUNTED = "cannot be counted"
AGAIN = "stop the agent, and run this again"
ALL_PROJECTS = "of every PROJECT_ID"
UNREAD = "and run this again: nothing there was looked at"
REMAINS = (
    "These remain: the servers, buckets and memory resources, their backups and logs, copies of "
    "sessions in other places, and the prompts in the history of `chat` in ~/.local/state."
)
RUNNING = "Stop the agent first: a running agent can store new data during the erasure."


class CannotList(Exception):
    """The items cannot be listed, in a second run neither. The message is safe to print."""


class Incomplete(Exception):
    """Only `done` items were deleted; `reason` is the first error."""

    def __init__(self, done: int, reason: BaseException) -> None:
        super().__init__(str(reason))
        self.done = done
        self.reason = reason


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
    says_project: bool = False  # `what` says whose items these are

    @property
    def safe_errors(self) -> tuple[type[Exception], ...]:
        """The errors whose messages are safe to print."""
        return (CannotList, *self.failures)

    async def count(self) -> int:
        """Return the number of items. Raises `failures` and CannotList."""
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
    """Run `work` for each name, some at a time; return the number of names.

    Raises Incomplete after all names, if some failed.
    """
    slots = asyncio.Semaphore(CONCURRENCY)

    async def run(name: str) -> None:
        async with slots:
            await work(name)

    results = await asyncio.gather(*map(run, names), return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise Incomplete(len(results) - len(errors), errors[0])
    return len(results)


def unread(what: str, where: str, variable: str) -> Stock:
    """Return the stock of a place that cannot be reached until a variable is set."""

    async def pages() -> AsyncIterator[list[str]]:
        raise CannotList(f"set {variable}, {UNREAD}")
        yield []  # makes this a generator

    async def delete(_: list[str]) -> int:
        return 0

    return Stock(what, where, pages, delete, says_project=True)


def unerasable(what: str, where: str, reason: str) -> Stock:
    """Return the stock of a place that this command cannot look at."""

    async def pages() -> AsyncIterator[list[str]]:
        yield ["all"]

    async def delete(_: list[str]) -> int:
        return 0

    return Stock(what, where, pages, delete, stays_because=reason, says_project=True)


@dataclass
class Place:
    """A stock, its name for messages, the number of its items, and the first failure."""

    stock: Stock
    name: str
    found: int = 0
    erased: int = 0
    failure: str = ""
    is_retryable: bool = False  # a second run may succeed

    def fail(self, error: Exception) -> None:
        """Keep the first failure."""
        self.failure = self.failure or str(error)
        self.is_retryable |= not isinstance(error, CannotList)


class ProjectErasure:
    """Counts and erases all stocks of a project."""

    def __init__(
        self, keepers: Sequence[Any], unshared: Collection[str], project_id: str | None = None
    ) -> None:
        stocks = [stock for keeper in keepers for stock in keeper.project_stocks(unshared)]
        self.places = [Place(stock, _name_of(stock, project_id)) for stock in stocks]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to erase, as far as the stores can tell."""
        erasable = [place for place in self.places if not place.stock.stays_because]
        return not any(place.found or place.failure for place in erasable)

    @property
    def has_remains(self) -> bool:
        """Whether data remains."""
        return any(place.failure or _stays(place) for place in self.places)

    @property
    def is_retryable(self) -> bool:
        """Whether a second run may erase more."""
        return any(place.is_retryable for place in self.places)

    async def count(self) -> list[str]:
        """Count all items, and return lines about them."""
        for place in self.places:
            place.found = await self._count(place)
        shown = [it for it in self.places if it.failure or not it.stock.stays_because]
        return [*[f"  {_found(place)}" for place in shown], *self._staying()]

    async def erase(self) -> list[str]:
        """Erase all items, and return lines about the erased and the remaining data."""
        for place in self.places:
            if not place.stock.stays_because:
                await self._erase(place)
        # A running agent may have stored new items since.
        for place in self.places:
            place.found = await self._count(place)
            if place.found and not place.stock.stays_because:
                place.failure = f"{place.found} left: {place.failure or AGAIN}"
                place.is_retryable = True
        done = [place for place in self.places if place.erased]
        lines = [f"erased: {place.name}: {place.erased}" for place in done]
        failed = [place for place in self.places if place.failure]
        lines += [f"failed: {place.name}: {place.failure}" for place in failed]
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
        except place.stock.safe_errors as error:
            place.fail(error)
        return 0

    async def _erase(self, place: Place) -> None:
        place.failure, place.is_retryable = "", False
        try:
            for _ in range(MAX_LISTS):
                names = [name async for page in place.stock.pages() for name in page]
                await _delete_all(place, names)
                if place.failure or not names:
                    return
        except place.stock.safe_errors as error:
            place.fail(error)

    def _staying(self) -> list[str]:
        staying = [place for place in self.places if _stays(place)]
        return [f"not erased: {place.name}: {place.stock.stays_because}" for place in staying]


async def _delete_all(place: Place, names: list[str]) -> None:
    """Delete items in batches. A failed batch does not keep the later ones."""
    useless = 0
    for at in range(0, len(names), BATCH):
        done, error = await _delete(place.stock, names[at : at + BATCH])
        place.erased += done
        if error:
            place.fail(error)
        useless = useless + 1 if error and not done else 0
        if useless == MAX_USELESS:
            return


async def _delete(stock: Stock, names: list[str]) -> tuple[int, Exception | None]:
    """Return the number of deleted items, and the first failure."""
    try:
        return await stock.delete(names), None
    except stock.failures as error:
        return 0, error
    except Incomplete as error:
        if not isinstance(error.reason, stock.failures):
            raise error.reason from None
        return error.done, error.reason


def _name_of(stock: Stock, project_id: str | None) -> str:
    """Return the items and their place, and whether they belong to all projects of the agent."""
    is_told = stock.says_project or not project_id
    return f"{stock.what} {'' if is_told else f'{ALL_PROJECTS} '}in {stock.where}"


def _found(place: Place) -> str:
    if place.failure:
        return f"{place.name}: {UNCOUNTED}: {place.failure}"
    return f"{place.name}: {place.found}"


def _stays(place: Place) -> bool:
    return bool(place.stock.stays_because and place.found)
