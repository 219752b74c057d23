"""Find the data of this project in its memories, and no data of other projects.

A memory may be shared by several projects. Only a record's path can name its project: events, and
records in namespaces without {projectId}, may belong to any of them.
"""

import re
from collections.abc import AsyncIterator, Iterable
from enum import Enum, auto

from ..collections.erasure import CannotList, Stock, for_each
from ..log import describe
from .base import Memory, MemoryCollection, MemoryUnavailable
from .local import LocalMemory
from .namespaces import PLACEHOLDER, Namespace, Who
from .policy import MemoryPolicy

PROJECT = "{projectId}"
ROOT = Namespace("/", is_subtree=True)
SHARED = "other projects may use this memory. If none does, add --unshared"
READ_ONLY = "the collection is read-only here"
NO_ERASE = "erase the project's data there yourself"
UNSET = "PROJECT_ID is not set, and its namespaces need it"


class Owner(Enum):
    """The owner of a record, by its path."""

    THIS_PROJECT = auto()
    ANY_PROJECT = auto()  # the path does not name the project
    OTHER = auto()


def owner_of(path: str, templates: Iterable[str], project_id: str | None) -> Owner:
    """Return the owner of the records at a path.

    A path names a project if a template has {projectId} as a whole segment there, and if no
    template without a project can resolve to exactly this path.
    """
    projects = set[str]()
    is_exact = False
    is_below = False
    for template in templates:
        part = _part_of(template)
        pattern = f"{_pattern(part)}(?P<below>/(?s:.*))?"
        match = re.fullmatch(pattern, path.strip("/"))
        if match is None:
            continue
        if project := match.groupdict().get("project"):
            projects.add(project)
        else:
            is_below = True
            is_exact |= match["below"] is None or template.endswith("/*")
    if projects - {project_id}:
        return Owner.OTHER
    if projects and not is_exact:
        return Owner.THIS_PROJECT
    return Owner.ANY_PROJECT if projects or is_below else Owner.OTHER


def stocks_of(
    collection: MemoryCollection, project_id: str | None, is_unshared: bool
) -> list[Stock]:
    """Return the project's records and events in the memory of a collection.

    `is_unshared`: no other project uses the memory.
    """
    memory = collection.memory
    local = LocalMemory(collection.id, [])  # of a trial without the service
    trial = _Contents(collection, local, project_id).all_stocks()
    if isinstance(memory, LocalMemory):
        return trial
    stocks = _Contents(collection, memory, project_id).stocks(is_unshared)
    return [*stocks, *trial] if local.exists else stocks


def own_store_stocks(policy: MemoryPolicy, project_id: str | None) -> list[Stock]:
    """Return the owner's writable stores: their protocol cannot erase a project."""
    identity = Who("erase-project", "", project_id)
    try:
        names = [it.name for it in policy.own_stores(identity) if getattr(it, "writable", False)]
    except Exception as error:  # noqa: BLE001 (owner's code)
        names = [f"unknown: {describe(error)}"]

    async def pages() -> AsyncIterator[list[str]]:
        yield ["all"]

    async def delete(_: list[str]) -> int:
        return 0

    return [
        Stock(
            what="data",
            where=f"store {name} of own_memory",
            pages=pages,
            delete=delete,
            stays_because=NO_ERASE,
            says_project=True,
        )
        for name in names
    ]


class _Contents:
    """The records and events in the memory of a collection."""

    def __init__(
        self, collection: MemoryCollection, memory: Memory, project_id: str | None
    ) -> None:
        self._collection = collection
        self._memory = memory
        self._project_id = project_id
        self._deleted = set[str]()  # records that later lists may still contain
        self._reason = "" if collection.is_erasable else READ_ONLY
        self._what = f"of collection {collection.id}"

    def all_stocks(self) -> list[Stock]:
        """Return all contents, for a file: its events name no project."""
        return [self._events(""), self._records(f"records {self._what}", None, "")]

    def stocks(self, is_unshared: bool) -> list[Stock]:
        """Return the contents by owner."""
        reason = "" if is_unshared else f"{SHARED} {self._collection.id}"
        what = f"records {self._what} in namespaces without a project"
        stocks = [self._events(reason), self._records(what, Owner.ANY_PROJECT, reason)]
        if self._collection.needs_project or self._project_id:
            what = f"records {self._what} of project {self._project_id}"
            stocks.append(self._records(what, Owner.THIS_PROJECT, ""))
        return stocks

    def _events(self, reason: str) -> Stock:
        memory = self._memory

        async def pages() -> AsyncIterator[list[str]]:
            for actor in await memory.actors():
                for session in await memory.sessions(actor):
                    async for page in memory.events(actor, session):
                        yield [f"{event} {session} {actor}" for event in page]

        async def delete_event(name: str) -> None:
            event, session, actor = name.split(" ", 2)
            await memory.delete_event(actor, session, event)

        async def delete(names: list[str]) -> int:
            return await for_each(names, delete_event)

        return Stock(
            f"events {self._what}",
            memory.contact,
            pages,
            delete,
            (MemoryUnavailable,),
            self._reason or reason,
            memory.after_erasure,
        )

    def _records(self, what: str, owner: Owner | None, reason: str) -> Stock:
        """Return the records of an owner; None: of all."""

        async def pages() -> AsyncIterator[list[str]]:
            async for page in self._pages(owner):
                yield [id for id in page if id not in self._deleted]

        async def delete(ids: list[str]) -> int:
            deleted = await self._memory.delete_records(ids)
            self._deleted.update(deleted)
            return len(deleted)

        return Stock(
            what,
            self._memory.contact,
            pages,
            delete,
            (MemoryUnavailable,),
            self._reason or reason,
            self._memory.after_erasure,
            says_project=owner is not None,
        )

    async def _pages(self, owner: Owner | None) -> AsyncIterator[list[str]]:
        if owner is None:
            async for page in self._memory.records(ROOT):
                yield page
            return
        templates = await self._memory.templates(self._collection)
        is_named = any(PROJECT in template for template in templates)
        if owner is Owner.THIS_PROJECT and is_named and not self._project_id:
            raise CannotList(UNSET)
        for folder in _folders(templates):
            async for entries in self._memory.entries(folder):
                yield [
                    id
                    for id, path in entries
                    if owner_of(path, templates, self._project_id) is owner
                ]


def _folders(templates: Iterable[str]) -> list[Namespace]:
    """Return the folders in front of the first placeholders, without folders of others."""
    paths = {f"/{template.strip('/').split('{')[0].rpartition('/')[0]}/" for template in templates}
    folders = [Namespace(path.replace("//", "/"), is_subtree=True) for path in sorted(paths)]
    return [it for it in folders if not any(o.holds(it.path) for o in folders if o != it)]


def _part_of(template: str) -> list[str]:
    """Return the segments up to {projectId}, or all if no segment is exactly {projectId}."""
    segments = template.removesuffix("/*").strip("/").split("/")
    ends = [at for at, segment in enumerate(segments, 1) if _names_project(segment)]
    return segments[: ends[0]] if ends else segments


def _names_project(segment: str) -> bool:
    # With two placeholders in a segment, the id could be a part of another project's id.
    return PROJECT in segment and len(PLACEHOLDER.findall(segment)) == 1


def _pattern(segments: list[str]) -> str:
    patterns = list[str]()
    for segment in segments:
        value = "(?P<project>[^/]+)" if _names_project(segment) else "[^/]+"
        patterns.append(value.join(re.escape(text) for text in PLACEHOLDER.split(segment)[::2]))
    return "/".join(patterns)
