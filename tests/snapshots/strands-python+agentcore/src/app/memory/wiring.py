"""The long-term memories of an agent: which collections are read and written, and by what."""

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

from ..collections.check import Project
from ..collections.memory_backend import AgentCoreConfig, NamespaceConfig
from ..collections.models import Collection
from ..collections.secrets import Secrets, unset_variables
from ..contract import AgentError, TurnRequest
from ..settings import Settings
from . import adapter, agentcore
from .base import Memory, MemoryUnavailable
from .local import LocalMemory
from .namespaces import Who, resolve
from .recall import MemoryTurn, Reader, current
from .record import Recorder, Writer

SLASH = "An actor id must not contain /: the namespaces of two actors could meet."


class LongTermMemory:
    """Long-term memory as the runtime uses it; without a collection of its kind it does nothing."""

    def __init__(self, settings: Settings, project: Project, secrets: Secrets) -> None:
        self._settings, self.project = settings, project
        self.project_id = settings.project_id
        self._clients = adapter.Clients(settings)
        self.memories: dict[str, Memory] = {}  # by the ids of their collections
        self.readers: list[Reader] = []
        self.writers: list[Writer] = []
        for collection in project.used():
            if isinstance(collection.backend, AgentCoreConfig):
                self._add(collection, collection.backend, secrets)
        self.recorder = Recorder(self.writers)
        self.actor_required = bool(self.memories)
        self._turns = WeakKeyDictionary[TurnRequest, MemoryTurn]()
        self._warming: list[asyncio.Task[None]] = []

    def _add(self, collection: Collection, backend: AgentCoreConfig, secrets: Secrets) -> None:
        id, lifetime = collection.collection_id, collection.scope.lifetime
        declared = backend.retrieval_config
        (ref,) = collection.backend.secret_refs()
        memory: Memory = adapter.AgentCore(ref, backend.region, secrets, self._clients)
        if unset := unset_variables(self._settings, collection):
            declared = declared or {default_template(collection): NamespaceConfig()}
            memory = LocalMemory(id, [*declared])
            memory.contact += f", until {unset[0]} is set"
        self.memories[id] = memory
        if id in self.project.reads:
            self.readers.append(Reader(id, lifetime, memory, declared))
        if self.project.is_writable(collection):
            project_id = self.project_id if _needs_project(collection) else None
            self.writers.append(Writer(id, memory, backend.batch_size, project_id))

    @property
    def is_waiting(self) -> bool:
        """Whether data of a committed turn is still to be recorded."""
        return self.recorder.is_waiting

    @property
    def retention_notice(self) -> str:
        """Where the texts of committed turns go, as further sentences of a notice."""
        return "".join(f" Its texts are recorded in {one.memory.contact}." for one in self.writers)

    def describe_endpoints(self) -> list[str]:
        """Return what each collection contacts, one line each."""
        return [
            f"Long-term memory: {'in' if isinstance(it, LocalMemory) else 'contacts'} {it.contact}"
            for it in self.memories.values()
        ]

    async def open(self) -> None:
        """Read the ids of the memories, and begin to make the clients that turns will need.

        Raises AgentError where the memories cannot work as declared.
        """
        try:
            if problem := find_problem(self._settings, self.project):
                raise MemoryUnavailable(problem)
            await self._check_writers()
        except MemoryUnavailable as error:
            raise AgentError("store_unavailable", detail=f"{error}.") from None
        needed: list[tuple[agentcore.Kind, Memory]] = []
        needed += [("recall", reader.memory) for reader in self.readers]
        needed += [("control", reader.memory) for reader in self.readers if not reader.declared]
        needed += [("record", writer.memory) for writer in self.writers]
        for kind, memory in needed:
            if isinstance(memory, adapter.AgentCore):
                self._warming.append(asyncio.create_task(memory.warm_up(kind)))

    async def _check_writers(self) -> None:
        """Refuse two collections that write to one memory: events belong to no namespace."""
        known: dict[tuple[str, str], str] = {}
        for memory_of in self.writers:
            id, memory = memory_of.collection_id, memory_of.memory
            if isinstance(memory, adapter.AgentCore):
                name = (await memory.memory_id()).rpartition("/")[2]
                other = known.setdefault((memory.region, name), id)
                if other != id:
                    what = f"collections {other} and {id} both write to one memory"
                    raise MemoryUnavailable(f"{what}: it would record each turn twice")

    def begin(self, request: TurnRequest) -> MemoryTurn:
        """Return the memory of the turn that this task runs, which its tools use too.

        Raises AgentError `actor_required` and `invalid_actor`.
        """
        if self.actor_required and not request.actor:
            raise AgentError("actor_required")
        if self.actor_required and "/" in (request.actor or ""):
            raise AgentError("invalid_actor", SLASH)
        who = Who(request.actor or "", request.session_id, self.project_id)
        turn = MemoryTurn(
            who,
            self.readers,
            warming=self._warming,
            seconds=self._settings.recall_timeout_seconds,
            is_writable=bool(self.writers),
        )
        self._turns[request] = turn
        current.set(turn)
        return turn

    def agent_options(self, request: TurnRequest) -> dict[str, Any]:
        """Return further arguments for the agent of one turn. Raises as `begin` does."""
        return adapter.agent_options(self.begin(request), self._settings)

    def record(self, request: TurnRequest, messages: list[Any], model: Any) -> None:
        """Pass on what a turn committed."""
        adapter.record(self.recorder, self._turns[request], messages, model)

    async def close(self, seconds: float) -> None:
        """Record what waits within this time, and accept no more."""
        await self.recorder.close(seconds)


def find_problem(settings: Settings, project: Project) -> str:
    """Return why the memories of a project cannot work with these settings, or ""."""
    for collection in project.used():
        if not isinstance(collection.backend, AgentCoreConfig):
            continue
        if _needs_project(collection) and not settings.project_id:
            return f"PROJECT_ID is not set, and collection {collection.collection_id} needs it"
        for template in collection.backend.retrieval_config or {}:
            try:
                resolve(template, Who("a", "s", settings.project_id))
            except ValueError as error:
                return f"collection {collection.collection_id}: {error}"
    return ""


def default_template(collection: Collection) -> str:
    """Return the namespace of a local memory whose collection declares none."""
    return "/users/{actorId}" if collection.scope.lifetime == "user" else "/projects/{projectId}"


def _needs_project(collection: Collection) -> bool:
    assert isinstance(collection.backend, AgentCoreConfig)
    templates = collection.backend.retrieval_config or {}
    is_named = any("{projectId}" in template for template in templates)
    return is_named or collection.scope.lifetime == "project"
