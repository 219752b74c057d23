"""Which long-term memories a project has: who reads them, and who writes to them."""

import os
from contextlib import suppress
from dataclasses import dataclass, field

from ..settings import Settings
from .agentcore import AgentCore
from .agentcore_client import Clients
from .backends import Unavailable
from .local_memory import LocalMemory
from .memories import Memory
from .models import AgentCoreMemory, Collection, Namespace
from .namespaces import Who, resolve
from .options import Options
from .project import Project
from .recall import Reader
from .recorder import Writer
from .secrets import SecretError, Secrets, variable_of
from .stores import is_writable


@dataclass
class Topology:
    """The memories by the ids of their collections, and the ways to them."""

    clients: Clients
    memories: dict[str, Memory] = field(default_factory=dict)
    readers: list[Reader] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)


def build_topology(
    settings: Settings, options: Options, project: Project, secrets: Secrets
) -> Topology:
    """What the collections of AgentCore Memory mean. Raises Unavailable for what cannot work."""
    built = Topology(Clients(options))
    for id in dict.fromkeys([*project.reads, *project.writes]):
        collection, backend = project.collections[id], project.collections[id].backend
        if not isinstance(backend, AgentCoreMemory):
            continue
        declared, where = backend.retrieval_config, backend.memory_id_secret or ""
        value = _project_of(collection, declared, options.project_id)
        memory: Memory = AgentCore(where, backend.region, options, secrets, built.clients)
        if settings.model == "offline" and (unset := unset_variable(backend)):
            is_own = collection.scope.lifetime == "user"
            default = "/users/{actorId}" if is_own else "/projects/{projectId}"
            declared = declared or {default: Namespace()}
            memory = LocalMemory(id, [*declared])
            memory.contact += f", until {unset} is set"
        built.memories[id] = memory
        if id in project.reads:
            built.readers.append(Reader(id, collection.scope.lifetime, memory, declared))
        if is_writable(project, collection):
            built.writers.append(Writer(id, memory, backend.batch_size, value))
    _check_writers(project, built, secrets)
    return built


def unset_variable(backend: AgentCoreMemory) -> str:
    """The variable to set before the memory is used while the model is offline, or ""."""
    name = variable_of(backend.memory_id_secret or "")
    return "" if os.environ.get(name, "").strip() else name


def _project_of(
    collection: Collection, declared: dict[str, Namespace] | None, project_id: str | None
) -> str | None:
    """The value of {projectId}, if the collection needs it; its namespaces are tried."""
    templates, id = [*(declared or {})], collection.collection_id
    is_needed = collection.scope.lifetime == "project" or "{projectId}" in "".join(templates)
    if is_needed and not project_id:
        raise Unavailable(f"PROJECT_ID is not set, and collection {id} needs it")
    try:
        for template in templates:
            resolve(template, Who("a", "s", project_id))
    except ValueError as error:
        raise Unavailable(f"collection {id}: {error}") from None
    return project_id if is_needed else None


def _check_writers(project: Project, built: Topology, secrets: Secrets) -> None:
    """At most one collection writes to a memory: an event belongs to no namespace."""
    known: dict[tuple[str, str], str] = {}
    ids = [one.collection_id for one in built.writers]
    for id in ids if len(ids) > 1 else ():
        backend = project.collections[id].backend
        assert isinstance(backend, AgentCoreMemory)
        name = backend.memory_id_secret or ""
        if not isinstance(built.memories[id], LocalMemory):
            with suppress(SecretError):  # of which there is a finding of its own
                name = secrets.read(name).rpartition("/")[2]
        other = known.setdefault((backend.region, name), id)
        if other != id:
            what = f"collections {other} and {id} both write to one memory"
            raise Unavailable(f"{what}: it would get each turn twice")
