"""What the turns of one process share: a model, and the sessions and memories of the files."""

import asyncio
import os
import re
from pathlib import Path
from typing import Any

from .contract import Ask
from .memory.backends import Backend, Unavailable
from .memory.long_term import LongTerm, current
from .memory.mirror import Mirror
from .memory.models import Collection
from .memory.options import read_options
from .memory.project import Project, check_project, load_project
from .memory.recalling import agent_options, prepare, record, with_memory
from .memory.secrets import Secrets, references_of, variable_of
from .memory.stored import Cached
from .memory.stores import build_backend, is_writable, keepers
from .model import build_model, check_model, model_endpoint
from .sessions import InProcess, Sessions
from .settings import Settings, diagnostic


class Parts:
    """The parts, and what the commands and the turns have to know of them."""

    kept = "Nothing was kept: sessions live in this process."
    store: Backend | None = None  # None: sessions live in this process
    collection: Collection | None = None  # the one that keeps the sessions

    def __init__(self, settings: Settings) -> None:
        """Raises anything for files in which `check` finds an error."""
        self.settings, self.model = settings, with_memory(build_model(settings))
        self.mirrors: list[Mirror] = []  # of further collections
        self.options, _ = read_options()
        project, secrets = load_project(Path(), self.options.agent_id), Secrets(self.options)
        self.long_term = LongTerm(settings, self.options, project, secrets)
        prepare(self.long_term)
        self.actor_required = self.long_term.actor_required  # whether every caller must name one
        self._open(project, secrets)
        for writer in self.long_term.recorder.writers:
            if self.kept == Parts.kept:
                self.kept = "Sessions live in this process."
            self.kept += f" What was said goes to {writer.memory.contact}."

    def _open(self, project: Project, secrets: Secrets) -> None:
        settings, options = self.settings, self.options
        kept, where = keepers(project), (project.agent_id, options, secrets)
        self.collection = kept[0] if kept else None
        if self.collection is None or _unset(settings, self.collection):
            self.sessions = Sessions(settings, InProcess(settings))
            return
        self.store = build_backend(self.collection, *where)
        self.actor_required |= self.collection.scope.lifetime == "user"
        for mirrored in kept[1:]:
            if is_writable(project, mirrored) and not _unset(settings, mirrored):
                copies = build_backend(mirrored, *where)
                self.mirrors.append(Mirror(copies, options.max_snapshot_bytes))
        can_write = is_writable(project, self.collection)
        if can_write:
            self.kept = "Its turns are kept: --session comes back to it."
        more: Any = {"is_writable": can_write, "mirrors": self.mirrors}
        self.sessions = Sessions(settings, Cached(settings, options, self.store, **more))

    @property
    def is_waiting(self) -> bool:
        """Whether something of a committed turn is still to be written."""
        return self.long_term.is_waiting or any(mirror.is_waiting for mirror in self.mirrors)

    @staticmethod
    def check(settings: Settings) -> list[dict[str, Any]]:
        """What is wrong with the environment and the files of these parts."""
        options, wrong = read_options()
        found = check_model(settings) + wrong + check_project(Path(), options.agent_id)
        for one in found:  # a start shows the messages only
            if one["file"] != "environment":
                one["message"] = f"{one['file']}:{one['line']} {one['id']} {one['message']}"
        if any(one["severity"] == "error" for one in found):
            return found
        project, secrets = load_project(Path(), options.agent_id), Secrets(options)
        where = project.agent_id, options, secrets
        for id in dict.fromkeys([*project.reads, *project.writes]):
            collection = project.collections[id]
            try:
                for reference in references_of(collection) if settings.model != "offline" else ():
                    secrets.read(*reference)
                if collection in keepers(project) and not _unset(settings, collection):
                    build_backend(collection, *where)
            except Unavailable as error:
                found.append(diagnostic("SET-STORE", f"{error}."))
        try:
            LongTerm(settings, options, project, secrets)
        except Unavailable as error:
            found.append(diagnostic("SET-STORE", f"{error}."))
        return found

    def contacts(self) -> list[str]:
        """What this process will contact, a line each."""
        where = "nothing" if self.settings.model == "offline" else model_endpoint(self.settings)
        shown = re.sub("//[^/]*@", "//", where)  # without a password that the address holds
        lines = [f"Model: {self.settings.model}, contacts {shown}"]
        if self.collection is None:
            lines += ["Sessions: in this process"]
        elif self.store is None:
            missing = _unset(self.settings, self.collection)[0]
            lines += [f"Sessions: in this process, until {missing} is set"]
        else:
            lines += [f"Sessions: {self.collection.backend.type}, contacts {self.store.contact}"]
        lines += [f"Copies: contacts {mirror.contact}" for mirror in self.mirrors]
        return lines + self.long_term.contacts()

    def agent_options(self, ask: Ask) -> dict[str, Any]:
        """More arguments for the agent of one turn. Raises AgentError for who may not have one."""
        return agent_options(self.long_term, self.long_term.begin(ask), self.options)

    def record(self, ask: Ask, messages: list[Any]) -> None:
        """Hear what a committed turn added."""
        record(self.long_term, current.get(), messages, self.model)

    async def close(self) -> None:
        """Write what waits to be written, and close what is open."""
        remembering = self.long_term.close(self.settings.shutdown_grace_seconds)
        await asyncio.gather(remembering, *[mirror.close() for mirror in self.mirrors])
        if self.store:
            await self.store.close()


def _unset(settings: Settings, collection: Collection) -> list[str]:
    """The variables to set before the collection is used; with a real model it always is."""
    names = [variable_of(reference) for reference, *_ in references_of(collection)]
    is_offline = settings.model == "offline"
    return [name for name in names if is_offline and name and not os.environ.get(name, "").strip()]
