"""The capability that stores sessions where a collection declares it."""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from collections.abc import Collection as Names
from dataclasses import replace
from functools import cached_property
from typing import Any
from uuid import uuid4

from ..capability import Capability
from ..collections.capability import Declarations
from ..collections.check import Project
from ..collections.erasure import CannotList, Stock, for_each, unread
from ..collections.models import Collection
from ..collections.secrets import unset_variables
from ..findings import Finding, diagnostic
from ..modules import LoadModules
from ..sessions.session_store import InProcess, SessionStore, Stored
from .base import Conflict, DurableStore, Files, StoreUnavailable, Unsupported
from .cached import CachedStore
from .detached_files import attach_files, detach_files
from .settings import StoreSettings
from .snapshot import parse

SNAPSHOT = {
    "scope": "agent",
    "schema_version": "1.0",
    "created_at": "1970-01-01T00:00:00Z",
    "data": {
        "messages": [
            {"role": "user", "content": [{"text": "Grüße 😀"}, {"data": "file" * 256}]},
            {"role": "assistant", "content": [{"tool": {"input": [{}, [], "", True, 2.5, None]}}]},
        ],
        "state": {"name": "value"},
    },
    "app_data": {
        "actor": "check",
        "turn": 1,
        "key": None,
        "reply": "",
        "turns": [{"at": 0, "key": None}],
    },
}
MISSING = object()
MAX_PATHS = 5  # the maximum number of changed fields in a finding
UNLISTED = "Delete them there, or single sessions with `sessions end SESSION`."
READ_ONLY = "the session store is read-only here"


class Store(Capability):
    """Stores sessions in the declared store; until its secrets are set, in this process."""

    settings: StoreSettings
    traced_as = "session_store"
    decorate: Callable[[Any], Any] | None = None  # set by TracedCalls

    def __init__(
        self, settings: StoreSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self._declarations = Declarations.find(before)

    @property
    def project(self) -> Project:
        """All declared collections."""
        return self._declarations.project

    @cached_property
    def collection(self) -> Collection | None:
        """The collection that declares the session store, or None."""
        return next(iter(self._declarations.project.session_collections()), None)

    @cached_property
    def durable(self) -> DurableStore | None:
        """The store, or None if sessions live in this process."""
        if self.collection is None or unset_variables(self.settings, self.collection):
            return None
        store = self.connect(self.collection)
        return self.decorate(store) if self.decorate else store

    def connect(self, collection: Collection) -> DurableStore:
        """Return the store that a collection declares."""
        from .declared import DeclaredStore  # its client takes a while to import

        agent_id = self._declarations.project.agent_id
        secrets = self._declarations.secrets
        return DeclaredStore(collection, agent_id, self.settings, secrets)

    @property
    def is_writable(self) -> bool:
        """Whether the agent may write to the collection."""
        project = self._declarations.project
        return self.collection is not None and project.is_writable(self.collection)

    @property
    def actor_required(self) -> bool:
        if self.durable is None or self.collection is None:
            return False
        return self.collection.scope.lifetime == "user"

    def session_store(self) -> SessionStore | None:
        if self.durable and self.collection:
            store = CachedStore(self.settings, self.durable, self.is_writable)
            store.description = f"{self.collection.backend.type}, contacts {self.durable.contact}"
            return store
        if self.collection is None:
            return None
        in_process = InProcess(self.settings)
        missing = unset_variables(self.settings, self.collection)[0]
        in_process.description = f"in this process, until {missing} is set"
        return in_process

    def project_stocks(self, unshared: Names[str]) -> list[Stock]:
        """Return the agent's sessions, and the data that the store keeps beside them."""
        if self.collection is None:
            return []
        store = self.durable
        if store is None:
            missing = unset_variables(self.settings, self.collection)[0]
            return [unread("sessions", "the session store", missing)]

        async def pages() -> AsyncIterator[list[str]]:
            try:
                yield await store.sessions()
            except Unsupported as error:
                raise CannotList(f"{error} {UNLISTED}") from None

        async def end(ids: list[str]) -> int:
            return await for_each(ids, store.end)

        sessions = Stock("sessions", store.contact, pages, end, (StoreUnavailable,))
        stocks = [sessions, *store.leftovers()]
        reason = "" if self.is_writable else READ_ONLY
        return [replace(stock, stays_because=reason) for stock in stocks]

    async def ping(self) -> list[Finding]:
        if self.durable is None or self.collection is None:
            return []
        try:
            findings = check_store(self.durable, self.collection, self.is_writable)
            return [finding async for finding in findings]
        finally:
            await self.durable.close()

    @property
    def closes_last(self) -> bool:
        return True

    async def close(self) -> None:
        if self.durable:
            await self.durable.close()


async def check_store(
    store: DurableStore, collection: Collection, is_writable: bool
) -> AsyncIterator[Finding]:
    """Load, save, compare and end a test session, and yield findings."""
    file = f"collections/{collection.collection_id}.collection.md"
    session = f"check-{uuid4()}"
    step = "loaded"
    try:
        await store.load(session)
        for id, message in await store.warnings():
            yield diagnostic(id, message, "warning", file, 1)
        if is_writable:
            step = "saved"
            try:
                snapshot, files = detach_files(json.dumps(SNAPSHOT).encode(), [])
                await store.save(session, snapshot, None, files=files)
                step = "loaded"
                stored = await store.load(session)
                found = await store.load_files(session, [*files])
                if message := _changes(stored, found):
                    yield diagnostic("AML-E160", message, file=file, line=1)
                step = "ended"
            finally:  # after a lost response or Ctrl+C the test session may exist
                await store.end(session)
    except (Conflict, StoreUnavailable) as error:
        message = f"No session can be {step}: {str(error) or 'a conflict'}."
        yield diagnostic("AML-E160", message, file=file, line=1)


def _changes(stored: Stored | None, files: Files) -> str:
    """Compare a loaded session with SNAPSHOT; return a message, or an empty text."""
    if stored is None:
        return "A saved session cannot be loaded again."
    paths = list(_changed(SNAPSHOT, parse(attach_files(stored.snapshot, files)), ""))
    names = ", ".join(paths[:MAX_PATHS]) + (", ..." if paths[MAX_PATHS:] else "")
    return f"A saved session comes back with changed or missing fields: {names}." if paths else ""


def _changed(saved: Any, loaded: Any, path: str) -> Iterator[str]:
    """Yield the paths of changed or missing values; a store may add fields to objects."""
    if isinstance(saved, dict) and isinstance(loaded, dict):
        for name, value in saved.items():
            yield from _changed(value, loaded.get(name, MISSING), f"{path}.{name}".strip("."))
    elif isinstance(saved, list) and isinstance(loaded, list) and len(saved) == len(loaded):
        for index, (value, found) in enumerate(zip(saved, loaded, strict=True)):
            yield from _changed(value, found, f"{path}[{index}]")
    elif saved != loaded:
        yield path or "everything"
