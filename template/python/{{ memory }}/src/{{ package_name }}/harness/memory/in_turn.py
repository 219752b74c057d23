"""Long-term memory in a turn: searches, and adds texts, for its actor."""

from collections.abc import Collection

from .base import Metadata
from .hits import Found
from .recall import MemoryTurn, current


async def search(
    query: str,
    *,
    stores: Collection[str] | None = None,
    max_search_results: int | None = None,
    metadata: Metadata | None = None,
) -> Found:
    """Return memories of the current actor, best first; `failures` names stores that failed.

    Of all stores or some by name, at most so many of each, and only records with this metadata.
    Raises ValueError for an unknown store or invalid values, RuntimeError outside a turn.
    """
    return await _turn().find(query, stores, max_search_results, metadata)


def add(
    text: str, *, stores: Collection[str] | None = None, metadata: Metadata | None = None
) -> None:
    """Remember a text about the current actor when the turn commits.

    In all stores that take texts, or some by name; the log names one that fails. Raises
    ValueError for a blank text, an unknown store or invalid metadata, RuntimeError outside a turn
    or without a writable memory.
    """
    _turn().add(text, stores, metadata)


def _turn() -> MemoryTurn:
    turn = current.get(None)
    if turn is None:
        raise RuntimeError("Long-term memory belongs to an actor: call this inside a turn.")
    return turn
