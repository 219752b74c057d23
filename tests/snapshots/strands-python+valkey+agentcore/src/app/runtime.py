"""What the turns of one process share: the model, the sessions and long-term memory."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from .collections.check import check_project, load_project
from .collections.secrets import SecretError, Secrets, unset_variables
from .contract import AgentError, TurnRequest
from .memory.adapter import with_memory
from .memory.check import check_memory, check_resources
from .memory.erase import LATER, Report
from .memory.wiring import LongTermMemory
from .model import build_model, check_model, model_endpoint
from .session_store import InProcess, SessionStore
from .sessions import Sessions
from .settings import Settings, without_password
from .store import open_store
from .store.base import DurableStore
from .store.cached import CachedStore
from .store.check import check_store
from .store.erase import erase_sessions, is_forgotten


class Runtime:
    """The model, the collections of the agent, and what the commands report about them."""

    actor_required = False  # whether every caller must send an actor id
    store: DurableStore | None = None  # None: sessions live in this process

    def __init__(self, settings: Settings) -> None:
        """Run `check` first: raises ValueError when the file of the agent is not valid."""
        self.settings, self.model = settings, build_model(settings)
        self.project = load_project(Path(), settings.agent_id)
        self._secrets = Secrets(settings)
        self.model = with_memory(self.model)
        self.long_term = LongTermMemory(settings, self.project, self._secrets)
        self.actor_required = self.long_term.actor_required
        self.collection = next(iter(self.project.session_collections()), None)
        sessions: SessionStore = InProcess(settings)
        if self.collection and not unset_variables(settings, self.collection):
            agent_id, is_writable = self.project.agent_id, self.project.is_writable(self.collection)
            self.store = open_store(self.collection, agent_id, settings, self._secrets)
            sessions = CachedStore(settings, self.store, is_writable)
            self.long_term.recorder.is_forgotten = partial(is_forgotten, self.store)
            self.actor_required |= self.collection.scope.lifetime == "user"
        self.sessions = Sessions(settings, sessions)

    @staticmethod
    def check(settings: Settings, connect: bool = False) -> list[dict[str, Any]]:
        """Return the findings about what the settings and the files name.

        With `connect`, each store and service in use is called too.
        """
        findings = check_model(settings) + check_project(Path(), settings.agent_id)
        if not any(one["severity"] == "error" for one in findings):
            findings += check_memory(Path(), settings)
        if connect and not any(one["severity"] == "error" for one in findings):
            findings += asyncio.run(_call_services(settings))
        return findings

    @property
    def is_waiting(self) -> bool:
        """Whether data of a committed turn is still to be written."""
        return self.long_term.is_waiting

    @property
    def retention_notice(self) -> str:
        """What was kept of a session, for whoever leaves it."""
        recorded = self.long_term.retention_notice
        if self.store and self.collection and self.project.is_writable(self.collection):
            return f"Its turns are kept: continue with --session.{recorded}"
        if recorded:
            return f"Sessions live in this process.{recorded}"
        if self.store:
            return "Nothing was kept: the session store is read-only."
        return "Nothing was kept: sessions live in this process."

    def describe_endpoints(self) -> list[str]:
        """Return what this process will contact, one line each, without passwords."""
        model = self.settings.model
        where = "nothing" if model == "offline" else without_password(model_endpoint(self.settings))
        lines = [f"Model: {model}, contacts {where}"]
        if self.collection is None:
            lines.append("Sessions: in this process")
        elif self.store is None:
            missing = unset_variables(self.settings, self.collection)[0]
            lines.append(f"Sessions: in this process, until {missing} is set")
        else:
            lines.append(f"Sessions: {self.collection.backend.type}, contacts {self.store.contact}")
        return lines + self.long_term.describe_endpoints()

    def agent_options(self, request: TurnRequest) -> dict[str, Any]:
        """Return further arguments for the agent of one turn; may raise AgentError."""
        return self.long_term.agent_options(request)

    def record(self, request: TurnRequest, messages: list[Any]) -> None:
        """Pass on the messages of a committed turn."""
        self.long_term.record(request, messages, self.model)

    async def erase_sessions(self, report: Report, candidates: list[str]) -> None:
        """End an actor's sessions; `candidates` are tried where the store cannot list them."""
        if self.store and self.collection:
            is_writable = self.project.is_writable(self.collection)
            erased = await erase_sessions(self.store, is_writable, report.actor, candidates)
            report.sessions = len(erased.ended)
            report.could_not += erased.failures
            report.notes += erased.notes if is_writable else [*erased.notes, LATER]
            return
        no_store = "no session store was searched: sessions live in the process"
        report.notes += [no_store, LATER]

    async def open(self) -> None:
        """Read the secrets that turns will need; raises AgentError for one that is missing."""
        if self.settings.model != "offline":
            try:
                for collection in self.project.used():
                    for ref in collection.backend.secret_refs():
                        await self._secrets.get(ref)
            except SecretError as error:
                raise AgentError("store_unavailable", detail=str(error)) from None
        await self.long_term.open()

    async def close(self) -> None:
        """Write what is still to be written, and disconnect."""
        await self.long_term.close(self.settings.shutdown_grace_seconds)
        if self.store:
            await self.store.close()


async def _call_services(settings: Settings) -> list[dict[str, Any]]:
    runtime, findings = Runtime(settings), list[dict[str, Any]]()
    try:
        if runtime.store and runtime.collection:
            is_writable = runtime.project.is_writable(runtime.collection)
            found = check_store(runtime.store, runtime.collection, is_writable)
            findings += [finding async for finding in found]
        findings += await check_resources(runtime.long_term, settings)
    finally:
        await runtime.close()
    return findings
