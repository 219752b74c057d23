"""Which collections keep the sessions, and the store of each type of backend."""

from importlib import import_module
from typing import cast

from .backends import Backend
from .models import Collection
from .options import Options
from .project import Project
from .secrets import Secrets

STORES = {
    "valkey": (".valkey_store", "ValkeyStore"),
    "s3": (".s3_store", "S3Store"),
    "custom": (".custom_store", "CustomStore"),
}


def build_backend(
    collection: Collection, agent_id: str, options: Options, secrets: Secrets
) -> Backend:
    """The store of a collection; the clients of the others are not even imported."""
    module, name = STORES[collection.backend.type]
    store = getattr(import_module(module, __package__), name)
    return cast(Backend, store(collection, agent_id, options, secrets))


def keepers(project: Project) -> list[Collection]:
    """The collection that keeps the sessions, and those that get copies of them."""
    ids = dict.fromkeys([*project.reads, *project.writes])
    named = [project.collections[id] for id in ids]
    sessions = [one for one in named if one.scope.lifetime == "session"]
    return sessions + [one for one in named if one.backend.type == "custom"]


def is_writable(project: Project, collection: Collection) -> bool:
    """Whether the agent may write to the collection."""
    return collection.writeback.enabled and collection.collection_id in project.writes
