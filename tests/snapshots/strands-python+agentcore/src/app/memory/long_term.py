"""`LongTermMemory`: connects the agent's memory collections to readers and writers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Any

from ..capability import Capability
from ..collections.capability import Declarations
from ..collections.check import Project
from ..collections.memory_backend import AgentCoreConfig, NamespaceConfig
from ..collections.models import Collection
from ..collections.secrets import unset_variables
from ..contract import AgentError, Turn
from ..findings import Finding
from . import adapter, agentcore
from .base import Memory, MemoryUnavailable
from .check import check_memory, check_resources, find_problem, needs_project
from .local import LocalMemory
from .namespaces import Who
from .recall import MemoryTurn, Reader, current
from .record import IsForgotten, Recorder, Writer
from .settings import MemorySettings

SLASH = "An actor id must not contain /: the namespaces of two actors could overlap."


class LongTermMemory(Capability):
    """The memories of the agent; does nothing without a memory collection."""

    settings: MemorySettings
    traced_as = "memory"
    decorate: Callable[[Any], Any] = staticmethod(lambda memory: memory)
    # SessionErasure sets both.
    is_forgotten: IsForgotten | None = None
    erase_sessions: Callable[[Any, list[str]], Awaitable[None]] | None = None

    def __init__(self, settings: MemorySettings, before: Sequence[Capability]) -> None:
        super().__init__(settings, before)
        self._declarations = Declarations.find(before)
        self.project_id = settings.project_id
        self._warming: list[asyncio.Task[None]] = []

    @property
    def project(self) -> Project:
        """The collections that the agent uses."""
        return self._declarations.project

    @cached_property
    def memories(self) -> dict[str, Memory]:
        """The memories, by the ids of their collections."""
        clients, secrets = adapter.Clients(self.settings), self._declarations.secrets
        memories = dict[str, Memory]()
        for id, (collection, backend) in self._collections.items():
            if unset := unset_variables(self.settings, collection):
                declared = backend.retrieval_config or [default_template(collection)]
                memories[id] = LocalMemory(id, [*declared])
                memories[id].contact += f", until {unset[0]} is set"
            else:
                (ref,) = backend.secret_refs()
                memories[id] = adapter.AgentCore(ref, backend.region, secrets, clients)
        return memories

    @cached_property
    def readers(self) -> list[Reader]:
        """The memories to search in turns."""
        readers = list[Reader]()
        for id, (collection, backend) in self._collections.items():
            declared, memory = backend.retrieval_config, self.memories[id]
            if isinstance(memory, LocalMemory):
                declared = declared or {default_template(collection): NamespaceConfig()}
            if id in self.project.reads:
                lifetime = collection.scope.lifetime
                readers.append(Reader(id, lifetime, self.decorate(memory), declared))
        return readers

    @cached_property
    def writers(self) -> list[Writer]:
        """The memories that record turns."""
        writers = list[Writer]()
        for id, (collection, backend) in self._collections.items():
            if self.project.is_writable(collection):
                project_id = self.project_id if needs_project(collection) else None
                memory = self.decorate(self.memories[id])
                writers.append(Writer(id, memory, backend.batch_size, project_id))
        return writers

    @cached_property
    def recorder(self) -> Recorder:
        """The recorder, which sends committed turns to the writers."""
        return Recorder(self.writers, self.is_forgotten)

    @cached_property
    def _collections(self) -> dict[str, tuple[Collection, AgentCoreConfig]]:
        return {
            collection.collection_id: (collection, collection.backend)
            for collection in self.project.used()
            if isinstance(collection.backend, AgentCoreConfig)
        }

    @property
    def actor_required(self) -> bool:
        return bool(self.memories)

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
            for memory in self.memories.values()
        ]

    def check(self) -> list[Finding]:
        return check_memory(self.project, self.settings) if self._declarations.is_valid else []

    async def ping(self) -> list[Finding]:
        return await check_resources(self.memories, self.project, self.settings)

    async def open(self) -> None:
        """Read the ids of the memories, and start to make the clients that turns need.

        Raises AgentError if the memories cannot work as declared.
        """
        try:
            if problem := find_problem(self.settings, self.project):
                raise MemoryUnavailable(problem)
            await self._check_writers()
        except MemoryUnavailable as error:
            raise AgentError("store_unavailable", detail=f"{error}.") from None
        needed: list[tuple[agentcore.Kind, str]] = []
        needed += [("recall", reader.collection_id) for reader in self.readers]
        needed += [
            ("control", reader.collection_id) for reader in self.readers if not reader.declared
        ]
        needed += [("record", writer.collection_id) for writer in self.writers]
        for kind, id in needed:
            memory = self.memories[id]
            if isinstance(memory, adapter.AgentCore):
                self._warming.append(asyncio.create_task(memory.warm_up(kind)))

    async def _check_writers(self) -> None:
        """Raise MemoryUnavailable if two collections write to one memory."""
        known: dict[tuple[str, str], str] = {}
        for writer in self.writers:
            id, memory = writer.collection_id, self.memories[writer.collection_id]
            if isinstance(memory, adapter.AgentCore):
                name = (await memory.memory_id()).rpartition("/")[2]
                other = known.setdefault((memory.region, name), id)
                if other != id:
                    what = f"collections {other} and {id} both write to one memory"
                    raise MemoryUnavailable(f"{what}: it would record each turn twice")

    def begin(self, turn: Turn) -> MemoryTurn:
        """Make the MemoryTurn that recall and the tools of this turn share.

        Raises AgentError `actor_required` and `invalid_actor`.
        """
        if self.actor_required and not turn.actor:
            raise AgentError("actor_required")
        if self.actor_required and "/" in (turn.actor or ""):
            raise AgentError("invalid_actor", SLASH)
        memory_turn = MemoryTurn(
            Who(turn.actor or "", turn.session_id, self.project_id),
            self.readers,
            warming=self._warming,
            seconds=self.settings.recall_timeout_seconds,
            is_writable=bool(self.writers),
        )
        turn.notes["memory"] = memory_turn
        turn.notes["recalled"] = lambda: [hit.text for hit in memory_turn.shown or []]
        current.set(memory_turn)
        return memory_turn

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        """Add memories and their tools to the agent of a turn. Raises as `begin` does."""
        adapter.prepare(self.begin(turn), options, self.settings)

    def committed(self, turn: Turn, messages: list[Any]) -> None:
        adapter.record(self.recorder, turn.notes["memory"], messages)

    async def close(self) -> None:
        """Record waiting turns within SHUTDOWN_GRACE_SECONDS, and accept no more."""
        await self.recorder.close(self.settings.shutdown_grace_seconds)


def default_template(collection: Collection) -> str:
    """Return the namespace of a local memory whose collection declares none."""
    return "/users/{actorId}" if collection.scope.lifetime == "user" else "/projects/{projectId}"
