"""The finding of `check --connect` about a bucket that keeps old versions of sessions."""

from typing import TYPE_CHECKING, Any, cast

from ..collections.models import Collection
from ..settings import diagnostic
from .base import DurableStore, StoreUnavailable

if TYPE_CHECKING:
    from .s3 import S3Store  # its client takes a while to load

KEPT = "The bucket keeps old versions, also of sessions that ended or were forgotten: "
KEPT += "let a lifecycle rule delete noncurrent versions soon."


async def check_versions(store: DurableStore, collection: Collection) -> list[dict[str, Any]]:
    """Return a warning where the bucket keeps versions; nothing where that cannot be seen."""
    file = f"collections/{collection.collection_id}.collection.md"
    try:
        keeps = await cast("S3Store", store).keeps_versions()
    except StoreUnavailable:
        keeps = False
    return [diagnostic("AML-W162", KEPT, "warning", file, 1)] if keeps else []
