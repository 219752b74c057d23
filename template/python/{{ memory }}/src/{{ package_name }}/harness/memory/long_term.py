"""The capability that connects memory collections to recall and recording."""

from asyncio import Task, create_task
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Collection as Names
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from ..capability import Capability, Runtime
from ..collections.capability import Declarations
from ..collections.check import Project
from ..collections.erasure import Stock, unread
from ..collections.memory_backend import NamespaceConfig
from ..collections.models import Collection
from ..collections.secrets import unset_variables
from ..contract import AgentError, Turn
from ..findings import Finding, diagnostic
from ..modules import LoadModules
from . import adapter
from .base import Memory, MemoryCollection, MemoryUnavailable, Utterance
from .check import check_policy, check_resources
from .kinds import KINDS, Kind
from .local import LocalMemory
from .namespaces import Who, default_template, resolve
from .policy import MemoryPolicy, policy_of
from .project_erasure import local_stocks, own_store_stocks, stocks_of
from .recall import MemoryTurn, turn_context
from .record import Extract, IsForgotten, Recorder
from .settings import MemorySettings

MAX_DESCRIPTION_CHARS = 200  # per store: providers reject tools with long descriptions
SLASH = "An actor id must not contain /: the namespaces of two actors could overlap."


class LongTermMemory(Capability):
    """The agent's memories. Does nothing without a memory collection."""

    settings: MemorySettings
    traced_as = "memory"  # the span name for TracedCalls, which sets `decorate`
    decorate: Callable[[Any], Any] = staticmethod(lambda memory: memory)
    # SessionErasure sets both.
    is_forgotten: IsForgotten | None = None
    erase_sessions: Callable[[Any, list[str]], Awaitable[None]] | None = None
    extract: Extract | None = None  # Extraction sets it

    def __init__(
        self, settings: MemorySettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self._declarations = Declarations.find(before)
        self.project_id = settings.project_id
        self._warming: list[Task[None]] = []
        self.turns = WeakKeyDictionary[Turn, MemoryTurn]()  # the running turns

    @property
    def project(self) -> Project:
        """The declared collections, of any kind."""
        return self._declarations.project

    @cached_property
    def policy(self) -> MemoryPolicy:
        """The owner's decisions."""
        return policy_of(self.load)

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """The kinds of memories, by backend type."""
        secrets = self._declarations.secrets
        return {type: kind(self.settings, secrets) for type, kind in KINDS.items()}

    @cached_property
    def collections(self) -> list[MemoryCollection]:
        """The memory collections that the agent uses."""
        return [self._build(it) for it in self.project.used() if it.backend.type in KINDS]

    def _build(self, collection: Collection) -> MemoryCollection:
        id = collection.collection_id
        lifetime = collection.scope.lifetime
        backend: Any = collection.backend
        declared = backend.retrieval_config
        memory: Memory
        unset = unset_variables(self.settings, collection)
        if unset or backend.type != "agentcore_memory":
            declared = declared or {default_template(lifetime): NamespaceConfig()}
        if unset:
            memory = LocalMemory(id, [*declared], f", until {unset[0]} is set")
        else:
            memory = self.kinds[backend.type].open(collection)
        is_named = any("{projectId}" in template for template in declared or {})
        needs_project = is_named or lifetime == "project"
        return MemoryCollection(
            id=id,
            lifetime=lifetime,
            memory=memory,
            traced=self.decorate(memory),
            description=" ".join(collection.meta.description.split())[:MAX_DESCRIPTION_CHARS],
            is_read=id in self.project.reads,
            is_writable=self.project.is_writable(collection),
            is_erasable=collection.writeback.enabled,
            batch_size=backend.batch_size,
            extracts=getattr(backend, "extraction", "none") == "model",
            needs_project=needs_project,
            project_id=self.project_id if needs_project else None,
            namespaces=declared,
        )

    @property
    def readers(self) -> list[MemoryCollection]:
        """The collections that turns search."""
        return [collection for collection in self.collections if collection.is_read]

    @property
    def writers(self) -> list[MemoryCollection]:
        """The collections that record turns."""
        return [collection for collection in self.collections if collection.is_writable]

    @cached_property
    def recorder(self) -> Recorder:
        """The recorder that sends committed turns to the writers."""
        return Recorder(self.writers, self.policy, self.is_forgotten, self.extract)

    @property
    def actor_required(self) -> bool:
        return bool(self.collections)

    @property
    def is_busy(self) -> bool:
        return self.recorder.is_waiting

    @property
    def retention_notice(self) -> str:
        places = [f"Its texts are recorded in {writer.memory.contact}." for writer in self.writers]
        return " ".join(places)

    def describe(self, address: str) -> list[str]:
        return [
            f"Long-term memory: {'in' if isinstance(memory, LocalMemory) else 'contacts'} "
            f"{memory.contact}"
            for memory in (collection.memory for collection in self.collections)
        ]

    @property
    def problem(self) -> str:
        """The reason why the memories cannot work with these settings, or ""."""
        return next(filter(None, map(_problem, self.collections)), "")

    def check(self) -> list[Finding]:
        if not self._declarations.is_valid:
            return []
        problem = self.problem
        findings = [diagnostic("SET-PROJECT_ID", f"{problem}.", "warning")] if problem else []
        return [*findings, *check_policy(self.project, self.settings.secrets_prefix)]

    async def ping(self) -> list[Finding]:
        return await check_resources(self.project, self.collections, self.kinds, self.project_id)

    async def open(self, runtime: Runtime) -> None:
        """Check the writers, and create clients in the background for the first turn.

        Raises AgentError if the memories cannot work with these settings.
        """
        try:
            if self.problem:
                raise MemoryUnavailable(self.problem)
            await self._check_writers()
        except MemoryUnavailable as error:
            raise AgentError("store_unavailable", detail=f"{error}.") from None
        for collection in self.collections:
            self._warming.append(create_task(collection.memory.warm_up(collection)))

    async def _check_writers(self) -> None:
        """Raise MemoryUnavailable if two collections write to the same memory."""
        writers: dict[str, str] = {}
        for writer in self.writers:
            place = await writer.memory.writes_to()
            if place and writers.setdefault(place, writer.id) != writer.id:
                problem = f"collections {writers[place]} and {writer.id} write to the same memory"
                raise MemoryUnavailable(f"{problem}, which would record each turn twice")

    def begin(self, turn: Turn) -> MemoryTurn:
        """Make the MemoryTurn that recall and the turn's tools share.

        Raises AgentError `actor_required` and `invalid_actor`.
        """
        if self.actor_required and not turn.actor:
            raise AgentError("actor_required")
        if self.actor_required and "/" in (turn.actor or ""):
            raise AgentError("invalid_actor", SLASH)
        memory_turn = self.turn_of(turn.actor or "", turn.session_id)
        # A turn that resumes after an approval has texts from before it.
        rows: Any = turn.kept.get("added", [])
        memory_turn.added = [Utterance(*row) for row in rows]
        turn.kept["added"] = memory_turn.added
        memory_turn.recalled = turn.recalled
        self.turns[turn] = memory_turn
        turn_context.set(memory_turn)
        return memory_turn

    def turn_of(self, actor: str, session_id: str) -> MemoryTurn:
        """Return a MemoryTurn for an actor and session."""
        turn = MemoryTurn(
            Who(actor, session_id, self.project_id),
            self.readers,
            policy=self.policy,
            warming=self._warming,
            seconds=self.settings.recall_timeout_seconds,
            overfetch=self.settings.recall_overfetch,
            writers=[writer.id for writer in self.writers],
            descriptions={it.id: it.description for it in self.collections},
        )
        turn.stores = adapter.stores_for(turn, self.settings)
        return turn

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        """Add memories and memory tools to the turn's agent. Raises as `begin` does."""
        adapter.prepare(self.begin(turn), options, self.settings)

    def committed(self, turn: Turn, messages: list[Any]) -> None:
        adapter.record(self.recorder, self.turns[turn], messages)

    def project_stocks(self, unshared: Names[str]) -> list[Stock]:
        """Return the project's records and events in all memories."""
        stocks = [
            stock
            for collection in self.collections
            for stock in stocks_of(
                collection, self.project_id, collection.id in unshared, self._beside(collection.id)
            )
        ]
        own = own_store_stocks(self.policy, self.project_id)
        return [*stocks, *local_stocks(), *self._unread_stocks(), *own]

    def _beside(self, collection_id: str) -> list[str]:
        """Return the namespaces of other collections in the same memory, by their files."""
        refs = self.project.collections[collection_id].backend.secret_refs()
        return [
            template
            for id, it in self.project.collections.items()
            if id != collection_id and it.backend.type in KINDS
            if it.backend.secret_refs() == refs
            for template in self._build(it).namespaces or {}
        ]

    def _unread_stocks(self) -> list[Stock]:
        """Return the memories whose secrets are not set: other stocks have only their files."""
        stocks = list[Stock]()
        for collection in self.collections:
            id = collection.id
            if unset := unset_variables(self.settings, self.project.collections[id]):
                what = f"events and records of collection {id}"
                stocks.append(unread(what, "its memory", unset[0]))
        return stocks

    def session_ended(self, session_id: str) -> None:
        """Record the session's batched turns now."""
        self.recorder.flush(session_id)

    async def close(self) -> None:
        """Record waiting turns within SHUTDOWN_GRACE_SECONDS, and stop accepting turns."""
        await self.recorder.close(self.settings.shutdown_grace_seconds)


def _problem(collection: MemoryCollection) -> str:
    if collection.needs_project and not collection.project_id:
        return f"PROJECT_ID is not set, and collection {collection.id} needs it"
    try:
        for template in collection.namespaces or {}:
            resolve(template, Who("a", "s", collection.project_id))
    except ValueError as error:
        return f"collection {collection.id}: {error}"
    return ""
