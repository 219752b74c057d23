"""The session store: Valkey or Redis."""

from ..collections.models import Collection
from ..collections.secrets import Secrets
from .base import DurableStore
from .settings import StoreSettings


def open_store(
    collection: Collection, agent_id: str, settings: StoreSettings, secrets: Secrets
) -> DurableStore:
    """Return the store that a collection declares. It connects on first use."""
    from .valkey import ValkeyStore  # the import of its client is slow

    return ValkeyStore(collection, agent_id, settings, secrets)
