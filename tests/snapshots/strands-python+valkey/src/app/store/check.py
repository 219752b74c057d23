"""Checks a store for `check --connect`: sessions can be loaded, saved and ended."""

from collections.abc import AsyncIterator
from uuid import uuid4

from ..collections.models import Collection
from ..findings import Finding, diagnostic
from .base import Conflict, DurableStore, StoreUnavailable

SNAPSHOT = (
    b'{"scope":"agent","schema_version":"1.0","created_at":"1970-01-01T00:00:00Z",'
    b'"data":{"messages":[]},"app_data":{"actor":null,"turn":1,"key":null,"reply":""}}'
)


async def check_store(
    store: DurableStore, collection: Collection, is_writable: bool
) -> AsyncIterator[Finding]:
    """Load, save and end a session of no caller, and yield findings."""
    file, session = f"collections/{collection.collection_id}.collection.md", f"check-{uuid4()}"
    step = "loaded"
    try:
        await store.load(session)
        for id, message in await store.warnings():
            yield diagnostic(id, message, "warning", file, 1)
        if is_writable:
            step = "saved"
            try:
                await store.save(session, SNAPSHOT, None)
                step = "ended"
            finally:  # also after a lost reply or Ctrl+C: nothing is left behind
                await store.end(session)
    except (Conflict, StoreUnavailable) as error:
        message = f"No session can be {step}: {str(error) or 'a conflict'}."
        yield diagnostic("AML-E160", message, file=file, line=1)
