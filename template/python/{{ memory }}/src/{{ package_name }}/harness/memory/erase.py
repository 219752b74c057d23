"""Erase one actor's data from the memories, and no data that may belong to others."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from .base import Memory, MemoryCollection, MemoryUnavailable, locate_failure
from .local import LocalMemory
from .long_term import LongTermMemory
from .namespaces import PLACEHOLDER, ROOT, STRATEGY, Namespace, Who, normalised, resolve

NO_STORE = "no session store was searched: sessions are in process memory"
LATER = "running turns and turns in the queue are recorded later: run this again after they finish"
RENAMED = "its file does not name this namespace: add it, and run this again"
UNCLEAR = "they may belong to another actor or project: erase them yourself"
READ_ONLY = "was not searched: it records no turns"
NO_ERASE = "it has no erase(actor): erase the actor's data there yourself"
MAX_LISTS = 10  # consecutive lists without a deletion
# Other placeholders, such as a tenant, could separate two actors with the same id.
KNOWN = {"actorId", "projectId", "sessionId", "memoryStrategyId"}


@dataclass
class Place:
    """The counts of erased data in one place; `where` is a collection or store."""

    where: str
    contact: str
    sessions: int = 0
    events: int = 0
    records: int = 0


@dataclass
class Report:
    """The erased data of an actor: totals, counts by place, failures and notes."""

    actor: str
    agent: str = ""
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    sessions: int = 0
    events: int = 0
    records: int = 0
    places: list[Place] = field(default_factory=list)
    could_not: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the report as text."""
        names = ("sessions", "events", "records")
        counts = [f"{name} erased: {getattr(self, name)}" for name in names]
        counts += [
            f"in {place.where}, {place.contact}: {count} {name}"
            for place in self.places
            for name in names
            if (count := getattr(place, name))
        ]
        failures = [f"failed: {failure}" for failure in self.could_not]
        return [*counts, *failures, *[f"note: {note}" for note in self.notes]]

    def add(self, where: str, contact: str) -> Place:
        """Add a place, and return it."""
        self.places.append(Place(where, contact))
        return self.places[-1]


@dataclass
class Scope:
    """The namespaces that belong to one actor alone, and the reasons for skipping others."""

    namespaces: dict[str, Namespace] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)  # namespaces that need a setting
    shared: list[str] = field(default_factory=list)  # namespaces that other actors may share


class Erasure:
    """Erases an actor from all memories of an agent."""

    def __init__(self, long_term: LongTermMemory, actor: str) -> None:
        self.report = Report(actor, long_term.project.agent_id)
        self._policy = long_term.policy
        self._erase_sessions = long_term.erase_sessions
        self._identity = Who(actor, "", long_term.project_id)
        self._memories: list[tuple[MemoryCollection, Memory]] = []
        self._sessions: list[list[str]] = []  # the actor's sessions, per memory
        for collection in long_term.collections:
            id = collection.id
            memory = collection.memory
            local = LocalMemory(collection.id, [])
            self._memories.append((collection, memory))
            if isinstance(memory, LocalMemory):
                self.report.notes.append(f"collection {id} was searched in {memory.contact}")
            elif local.exists:  # a file from a trial without the service
                self._memories.append((collection, local))

    async def erase(self) -> Report:
        """Erase sessions, events and records, and return the report."""
        for collection, memory in self._memories:
            self._sessions.append([])
            with self._attempt(f"events of collection {collection.id}"):
                self._sessions[-1] = await memory.sessions(self.report.actor)
        candidates = sorted({id for sessions in self._sessions for id in sessions})
        if self._erase_sessions:
            await self._erase_sessions(self.report, candidates)
        else:
            self.report.notes += [NO_STORE, LATER]
        for (collection, memory), sessions in zip(self._memories, self._sessions, strict=True):
            await self._erase_memory(collection, memory, sessions)
        await self._erase_own_stores()
        self.report.notes[:] = dict.fromkeys(self.report.notes)
        return self.report

    async def _erase_memory(
        self, collection: MemoryCollection, memory: Memory, sessions: list[str]
    ) -> None:
        report = self.report
        where = f"of collection {collection.id}"
        templates = await self._templates(collection, memory)
        scope = erasure_scope(templates, self._identity, sessions)
        report.could_not += [f"{reason} ({where})" for reason in scope.missing]
        report.notes += [f"{reason} ({where})" for reason in scope.shared]
        namespaces = list(scope.namespaces.values())
        with self._attempt(f"records {where} in namespaces that its file does not name"):
            for path in await self._paths(memory):
                if any(namespace.holds(path) for namespace in namespaces):
                    continue
                found = _actors_place(path, templates, self._identity)
                if isinstance(found, Namespace):
                    namespaces.append(found)
                elif found:
                    report.could_not.append(f"records in {path} {where}: {found}")
        if not collection.is_erasable:
            with self._attempt(f"events {where}"):
                if await self._has_any(memory, sessions, namespaces):
                    report.could_not.append(f"events and records {where}: it is read-only here")
            return
        place = report.add(f"collection {collection.id}", memory.contact)
        with self._attempt(f"events {where}"):
            for session in sessions:
                await self._erase_events(memory, session, place)
        with self._attempt(f"records {where}"):
            for namespace in namespaces:
                await self._erase_records(memory, namespace, place)

    async def _paths(self, memory: Memory) -> list[str]:
        """Return the sorted paths of records that contain the actor's id."""
        found = set[str]()
        async for entries in memory.entries(ROOT):
            paths = [normalised(path) for _, places in entries for path in places]
            found.update(path for path in paths if self.report.actor in path)
        return sorted(found)

    async def _erase_events(self, memory: Memory, session: str, place: Place) -> None:
        async def delete(ids: list[str]) -> list[str]:
            for id in ids:
                await memory.delete_event(self.report.actor, session, id)
                self.report.events += 1
                place.events += 1
            self._add_note(memory)
            return ids

        await erase_all(partial(memory.events, self.report.actor, session), delete)

    async def _erase_records(self, memory: Memory, namespace: Namespace, place: Place) -> None:
        async def delete(ids: list[str]) -> list[str]:
            deleted = await memory.delete_records(ids)
            self.report.records += len(deleted)
            place.records += len(deleted)
            self._add_note(memory)
            return deleted

        await erase_all(partial(memory.records, namespace), delete)

    async def _erase_own_stores(self) -> None:
        """Erase from the owner's stores with `erase`: the SDK's protocol cannot erase."""
        report = self.report
        try:
            stores = self._policy.own_stores(self._identity)
        except Exception as error:  # noqa: BLE001 (owner's code)
            report.could_not.append(f"the stores of own_memory: {locate_failure(error)}")
            return
        for store in stores:
            where = f"store {store.name}"
            erase = getattr(store, "erase", None)
            try:
                if erase is not None:
                    await erase(report.actor)
                    report.add(where, "own_memory")
                elif getattr(store, "writable", False):
                    report.could_not.append(f"{where}: {NO_ERASE}")
                else:
                    report.notes.append(f"{where} {READ_ONLY}")
            except Exception as error:  # noqa: BLE001 (owner's code)
                report.could_not.append(f"{where}: {locate_failure(error)}")

    def _add_note(self, memory: Memory) -> None:
        if memory.after_erasure:
            self.report.notes.append(memory.after_erasure)

    async def _templates(self, collection: MemoryCollection, memory: Memory) -> list[str]:
        with self._attempt(f"records of collection {collection.id} in all its namespaces"):
            return await memory.templates(collection)
        return [*(collection.namespaces or {})]

    @contextmanager
    def _attempt(self, task: str) -> Iterator[None]:
        try:
            yield
        except MemoryUnavailable as error:
            self.report.could_not.append(f"{task}: {error}")

    async def _has_any(
        self, memory: Memory, sessions: list[str], namespaces: list[Namespace]
    ) -> bool:
        lists = [memory.events(self.report.actor, session) for session in sessions]
        lists += [memory.records(namespace) for namespace in namespaces]
        for pages in lists:
            async for page in pages:
                if page:
                    return True
        return False


async def erase_all(
    list_pages: Callable[[], AsyncIterator[list[str]]],
    delete: Callable[[list[str]], Awaitable[list[str]]],
) -> None:
    """Delete each page of a list, and list again from the start, until the list is empty.

    `delete` returns the deleted ids. Raises MemoryUnavailable.
    """
    deleted: set[str] = set()  # later lists may still contain them
    lists = 0
    remaining = 0
    while lists < MAX_LISTS:
        before = len(deleted)
        remaining = 0
        try:
            async for page in list_pages():
                if ids := [id for id in page if id not in deleted]:
                    deleted.update(await delete(ids))
                    remaining += len(ids)
        except MemoryUnavailable:
            if len(deleted) == before:
                raise  # after deletions, the token of the next page may be invalid: list again
        else:
            if not remaining:
                return
        lists = lists + 1 if len(deleted) == before else 0
    raise MemoryUnavailable(f"{remaining} items were not deleted")


def erasure_scope(templates: Iterable[str], identity: Who, sessions: list[str]) -> Scope:
    """Return the actor's own namespaces: each template up to {actorId}.

    `sessions` are the actor's sessions, for templates with {sessionId}.
    """
    scope = Scope()
    templates = [*dict.fromkeys(templates)]
    if "/" in identity.actor:
        scope.shared.append("an actor id with a / has no records")
        return scope
    for template in templates:
        if STRATEGY in template:
            continue  # records of deleted strategies are found by their paths
        part = _actors_part(template)
        if not part:
            scope.shared.append(f"records in {template} are shared by all users")
            continue
        if "{projectId}" in part and not identity.project_id:
            scope.missing.append(f"records in {template}: PROJECT_ID is not set")
            continue
        if "{projectId}" in part:
            scope.shared.append(
                f"only records of project {identity.project_id} are erased in {template}"
            )
        for session in sessions if "{sessionId}" in part else [""]:
            try:
                namespace = resolve(part, replace(identity, session_id=session))
            except ValueError as error:
                scope.shared.append(f"records in {error}")
                break
            if any(_may_be_of_others(namespace, other, identity.actor) for other in templates):
                scope.shared.append(f"records in {namespace.path} may also belong to others")
            else:
                scope.namespaces[namespace.path] = namespace
    return scope


def _actors_place(path: str, templates: list[str], identity: Who) -> Namespace | str | None:
    """Return the actor's part of a path, or the reason why its records remain.

    Return None for a path of others. Every template that matches the start of the path must mean
    this actor, including the default template: a strategy may have used it earlier.
    """
    actor = identity.actor
    matches = {it: match for it in templates if (match := _match(it, path, actor))}
    if not any(match["actorId"] == actor for match in matches.values()):
        is_named = actor in path.split("/")
        if not is_named or any(_may_be_of_others(Namespace(path), it, actor) for it in templates):
            return None
    place: Namespace | str = RENAMED
    for template, match in matches.items():
        place = Namespace(match[0], is_subtree=True)
        if (
            match["actorId"] != actor
            or match.groupdict().get("projectId") not in (None, identity.project_id)
            or not all(map(_is_clear, _actors_part(template).split("/")))
            or any(_may_be_of_others(place, other, actor) for other in templates)
        ):
            return UNCLEAR
    return place


def _match(template: str, path: str, actor: str) -> re.Match[str] | None:
    """Match the start of a path with the actor's part of a template; prefer this actor."""
    part = _actors_part(template).removesuffix("*")
    own = re.match(_pattern(part, re.escape(actor)), path) if _is_mixed(part) else None
    return own or (re.match(_pattern(part), path) if part else None)


def _is_mixed(template: str) -> bool:
    """Whether a segment has {actorId} and another placeholder."""
    return any("{actorId}" in it and not _is_clear(it) for it in template.split("/"))


def _is_clear(segment: str) -> bool:
    names = PLACEHOLDER.findall(segment)
    return len(names) < 2 and KNOWN.issuperset(names)  # two ids in a segment have no clear border


def _actors_part(template: str) -> str:
    """Return the template cut after the segment with {actorId}, with /*; or ""."""
    segments = template.strip("/").split("/")
    ends = (end for end, segment in enumerate(segments, 1) if "{actorId}" in segment)
    end = next(ends, 0)
    return "/".join(["", *segments[:end], "*"]) if end else ""


def _may_be_of_others(namespace: Namespace, template: str, actor: str) -> bool:
    """Whether the template of another actor can resolve to a path in the namespace."""
    segments = template.strip("/").split("/")[: namespace.path.count("/") - 1]
    prefix = "/".join(segments)
    match = re.fullmatch(_pattern(prefix), namespace.path.strip("/"))
    return match is not None and (match.groupdict().get("actorId") != actor or _is_mixed(prefix))


def _pattern(template: str, actor: str = "[^/]+") -> str:
    """Return the pattern of a template's paths, with the groups `actorId` and `projectId`."""
    values = {"actorId": actor, "projectId": "[^/]+"}
    pattern = ""
    for index, part in enumerate(PLACEHOLDER.split(template)):
        if index % 2 == 0:
            pattern += re.escape(part)
        elif part not in values:
            pattern += "[^/]+"
        else:
            pattern += f"(?P={part})" if f"<{part}>" in pattern else f"(?P<{part}>{values[part]})"
    return pattern
