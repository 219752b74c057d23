"""The session store: an endpoint of your own."""

from ..collections.models import Collection
from ..collections.secrets import Secrets
from .base import DurableStore
from .settings import StoreSettings


def open_store(
    collection: Collection, agent_id: str, settings: StoreSettings, secrets: Secrets
) -> DurableStore:
    """Return the store that a collection declares. It connects on first use."""
    from .endpoint import EndpointStore  # the import of its client is slow

    return EndpointStore(collection, agent_id, settings, secrets)
