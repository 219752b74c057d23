"""What the turns of one process share: a model, and sessions in the store that the files name."""

import os
import re
from pathlib import Path
from typing import Any

from .contract import Ask
from .memory.backends import Backend
from .memory.mirror import Mirror
from .memory.models import Collection
from .memory.options import read_options
from .memory.project import Project, check_project, load_project
from .memory.secrets import SecretError, Secrets, references_of, variable_of
from .memory.stored import Cached, build_backend
from .model import build_model, check_model, model_endpoint
from .sessions import InProcess, Sessions
from .settings import Settings, diagnostic


class Parts:
    """The parts, and what the commands and the turns have to know of them."""

    actor_required = False  # whether every caller must name an actor
    kept = "Nothing was kept: sessions live in this process."
    store: Backend | None = None  # None: sessions live in this process
    collection: Collection | None = None  # the one that keeps the sessions

    def __init__(self, settings: Settings) -> None:
        """Raises anything for files in which `check` finds an error."""
        self.settings, self.model = settings, build_model(settings)
        self.mirrors: list[Mirror] = []  # of further collections
        options, _ = read_options()
        project = load_project(Path(), options.agent_id)
        keepers, where = _keepers(project), (project.agent_id, options, Secrets(options))
        self.collection = keepers[0] if keepers else None
        if self.collection is None or _unset(settings, self.collection):
            self.sessions = Sessions(settings, InProcess(settings))
            return
        self.store = build_backend(self.collection, *where)
        self.actor_required = self.collection.scope.lifetime == "user"
        for mirrored in keepers[1:]:
            if _is_writable(project, mirrored) and not _unset(settings, mirrored):
                self.mirrors.append(Mirror(build_backend(mirrored, *where)))
        is_writable = _is_writable(project, self.collection)
        if is_writable:
            self.kept = "Its turns are kept: --session comes back to it."
        more: Any = {"is_writable": is_writable, "mirrors": self.mirrors}
        self.sessions = Sessions(settings, Cached(settings, options, self.store, **more))

    @property
    def is_waiting(self) -> bool:
        """Whether something of a committed turn is still to be written."""
        return any(mirror.is_waiting for mirror in self.mirrors)

    @staticmethod
    def check(settings: Settings) -> list[dict[str, Any]]:
        """What is wrong with the environment and the files of these parts."""
        options, wrong = read_options()
        found = check_model(settings) + wrong + check_project(Path(), options.agent_id)
        for one in found:  # a start shows the messages only
            if one["file"] != "environment":
                one["message"] = f"{one['file']}:{one['line']} {one['id']} {one['message']}"
        if settings.model == "offline" or any(one["severity"] == "error" for one in found):
            return found
        for collection in _keepers(load_project(Path(), options.agent_id)):
            for reference in references_of(collection):
                try:
                    Secrets(options).read(*reference)
                except SecretError as error:
                    found.append(diagnostic("SET-SECRET", f"{error}."))
        return found

    def contacts(self) -> list[str]:
        """What this process will contact, a line each."""
        where = "nothing" if self.settings.model == "offline" else model_endpoint(self.settings)
        shown = re.sub("//[^/]*@", "//", where)  # without a password that the address holds
        lines = [f"Model: {self.settings.model}, contacts {shown}"]
        if self.collection is None:
            return [*lines, "Sessions: in this process"]
        if self.store is None:
            missing = _unset(self.settings, self.collection)[0]
            return [*lines, f"Sessions: in this process, until {missing} is set"]
        kept = f"Sessions: {self.collection.backend.type}, contacts {self.store.contact}"
        return [*lines, kept, *(f"Copies: contacts {mirror.contact}" for mirror in self.mirrors)]

    def agent_options(self, ask: Ask) -> dict[str, Any]:
        """More arguments for the agent of one turn."""
        return {}

    def record(self, ask: Ask, messages: list[Any]) -> None:
        """Hear what a committed turn added."""

    async def close(self) -> None:
        """Write what waits to be written, and close what is open."""
        for mirror in self.mirrors:
            await mirror.close()
        if self.store:
            await self.store.close()


def _keepers(project: Project) -> list[Collection]:
    """The collection that keeps the sessions, and those that get copies of them."""
    ids = dict.fromkeys([*project.reads, *project.writes])
    named = [project.collections[id] for id in ids]
    sessions = [one for one in named if one.scope.lifetime == "session"]
    return sessions + [one for one in named if one.backend.type == "custom"]


def _is_writable(project: Project, collection: Collection) -> bool:
    return collection.writeback.enabled and collection.collection_id in project.writes


def _unset(settings: Settings, collection: Collection) -> list[str]:
    """The variables to set before the collection is used; with a real model it always is."""
    names = [variable_of(reference) for reference, *_ in references_of(collection)]
    is_offline = settings.model == "offline"
    return [name for name in names if is_offline and name and not os.environ.get(name)]
