"""The session store: Amazon S3."""

from ..collections.models import Collection
from ..collections.secrets import Secrets
from .base import DurableStore
from .settings import StoreSettings


def open_store(
    collection: Collection, agent_id: str, settings: StoreSettings, secrets: Secrets
) -> DurableStore:
    """Return the store that a collection declares. It connects on first use."""
    from .s3 import S3Store  # the import of its client is slow

    return S3Store(collection, agent_id, settings, secrets)
