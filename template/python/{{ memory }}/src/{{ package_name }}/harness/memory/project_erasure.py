"""Find the data of this project in its memories, and no data of other projects.

A memory may be shared by several projects. Only a record's path can name its project: events, and
records in namespaces without {projectId}, may belong to any of them.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable
from enum import IntEnum, auto
from functools import partial

from ..collections.erasure import CannotList, Stock, for_each, unerasable
from .base import Memory, MemoryCollection, MemoryUnavailable, locate_failure
from .local import LocalMemory
from .namespaces import PLACEHOLDER, ROOT, Who
from .policy import MemoryPolicy

PROJECT = "{projectId}"
SHARED = "other projects may use this memory. If none does, add --unshared"
READ_ONLY = "the collection is read-only here"
NO_ERASE = "erase the project's data there yourself"
UNSET = "PROJECT_ID is not set, and its namespaces need it"


class Owner(IntEnum):
    """The owner of a record, by its path. A greater value forbids more."""

    THIS_PROJECT = auto()
    ANY_PROJECT = auto()  # the path does not name the project
    UNKNOWN = auto()  # no template matches the path
    UNCLEAR = auto()  # by some templates another project, by others not
    OTHER = auto()


def owner_of(path: str, templates: Iterable[str], project_id: str | None) -> Owner:
    """Return the owner of the records at a path.

    A path names a project if a template has {projectId} as a whole segment there, and if no
    template without a project can resolve to exactly this path.
    """
    projects = set[str]()
    is_exact = False
    is_wildcard = False
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
            is_exact |= match["below"] is None
            is_wildcard |= template.endswith("/*")
    if projects - {project_id}:
        return Owner.UNCLEAR if is_exact or project_id in projects else Owner.OTHER
    if projects and not is_exact and not is_wildcard:
        return Owner.THIS_PROJECT
    return Owner.ANY_PROJECT if projects or is_below else Owner.UNKNOWN


def stocks_of(
    collection: MemoryCollection, project_id: str | None, is_unshared: bool, beside: list[str]
) -> list[Stock]:
    """Return the project's records and events in the memory of a collection.

    `is_unshared`: no other project uses the memory. `beside`: the templates of other collections
    in the same memory.
    """
    if isinstance(collection.memory, LocalMemory):
        return []  # in `local_stocks`
    read_only = "" if collection.is_erasable else READ_ONLY
    contents = _Contents(collection.id, collection.memory, read_only)
    shared = "" if is_unshared else f"{SHARED} {collection.id}"
    parts = [
        (Owner.ANY_PROJECT, " in namespaces without a project", shared),
        (Owner.UNKNOWN, " in namespaces that its file does not name", shared),
        (Owner.UNCLEAR, " in namespaces that may name another project", NO_ERASE),
    ]
    if collection.needs_project or project_id:
        project = f"project {project_id}" if project_id else "this project"
        parts.append((Owner.THIS_PROJECT, f" of {project}", ""))
    stocks = [contents.events(shared)]
    for owner, whose, reason in parts:
        pages = partial(_records_of, owner, collection, project_id, beside)
        stocks.append(contents.records(pages, whose, reason))
    return stocks


def local_stocks() -> list[Stock]:
    """Return all contents of the local files, which agents of this folder wrote."""
    stocks = list[Stock]()
    for id in LocalMemory.ids():
        memory = LocalMemory(id, [])
        contents = _Contents(id, memory)
        stocks += [contents.events(), contents.records(partial(memory.records, ROOT))]
    return stocks


def own_store_stocks(policy: MemoryPolicy, project_id: str | None) -> list[Stock]:
    """Return the owner's writable stores: their protocol cannot erase a project."""
    identity = Who("erase-project", "", project_id)
    try:
        names = [it.name for it in policy.own_stores(identity) if getattr(it, "writable", False)]
    except Exception as error:  # noqa: BLE001 (owner's code)
        names = [f"unknown: {locate_failure(error)}"]
    return [unerasable("data", f"store {name} of own_memory", NO_ERASE) for name in names]


class _Contents:
    """The records and events in a memory, and why they stay."""

    def __init__(self, collection_id: str, memory: Memory, reason: str = "") -> None:
        self._memory = memory
        self._deleted = set[str]()  # records that later lists may still contain
        self._reason = reason
        self._what = f"of collection {collection_id}"

    def events(self, reason: str = "") -> Stock:
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

    def records(
        self, ids: Callable[[], AsyncIterator[list[str]]], whose: str = "", reason: str = ""
    ) -> Stock:
        async def pages() -> AsyncIterator[list[str]]:
            async for page in ids():
                yield [id for id in page if id not in self._deleted]

        async def delete(ids: list[str]) -> int:
            deleted = await self._memory.delete_records(ids)
            self._deleted.update(deleted)
            return len(deleted)

        return Stock(
            f"records {self._what}{whose}",
            self._memory.contact,
            pages,
            delete,
            (MemoryUnavailable,),
            self._reason or reason,
            self._memory.after_erasure,
            says_project=bool(whose),
        )


async def _records_of(
    owner: Owner, collection: MemoryCollection, project_id: str | None, beside: list[str]
) -> AsyncIterator[list[str]]:
    """Yield the ids of the records of an owner, page by page."""
    templates = await collection.memory.templates(collection)
    is_named = any(PROJECT in template for template in templates)
    if owner is Owner.THIS_PROJECT and is_named and not project_id:
        raise CannotList(UNSET)

    def find(path: str) -> Owner:
        found = owner_of(path, templates, project_id)
        is_beside = owner_of(path, beside, project_id) is not Owner.UNKNOWN
        return Owner.OTHER if found is Owner.UNKNOWN and is_beside else found

    def strictest(paths: list[str]) -> Owner:
        owners = {find(path) for path in paths}
        is_common = owners >= {Owner.THIS_PROJECT, Owner.OTHER}
        return Owner.UNCLEAR if is_common else max(owners)

    async for entries in collection.memory.entries(ROOT):
        yield [id for id, paths in entries if strictest(paths) is owner]


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
