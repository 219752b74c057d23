"""Search long-term memory and add texts, for the actor of the current turn."""

from collections.abc import Collection

from .base import Metadata
from .hits import Found
from .recall import MemoryTurn, turn_context


async def search(
    query: str,
    *,
    stores: Collection[str] | None = None,
    max_search_results: int | None = None,
    metadata: Metadata | None = None,
) -> Found:
    """Return the current actor's memories, best first; `failures` maps failed stores to reasons.

    `stores` selects stores by name (default: all), `max_search_results` limits the results per
    store, and `metadata` filters records. Raises ValueError for an unknown store or invalid values,
    and RuntimeError outside a turn.
    """
    return await _turn().find(query, stores, max_search_results, metadata)


def add(
    text: str, *, stores: Collection[str] | None = None, metadata: Metadata | None = None
) -> None:
    """Queue text to store in the current actor's memory when the turn commits.

    `stores` selects stores by name (default: all that accept texts). The log reports failed stores.
    Raises ValueError for blank text, an unknown store or invalid metadata. Raises RuntimeError
    outside a turn, and if no memory is writable.
    """
    _turn().add(text, stores, metadata)


def _turn() -> MemoryTurn:
    turn = turn_context.get(None)
    if turn is None:
        raise RuntimeError("Long-term memory belongs to an actor: call this inside a turn.")
    return turn
