"""Long-term memory for the agent's own code: its tools may search, and add texts."""

from .recall import Hit, MemoryTurn, current

__all__ = ["Hit", "add", "search"]


async def search(query: str) -> list[Hit]:
    """Return memories of the current actor, best first; [] if the memory is down.

    Raises RuntimeError outside a turn.
    """
    return await _turn().search(query)


def add(text: str) -> None:
    """Remember a text about the current actor when the turn commits.

    Raises ValueError for a blank text, RuntimeError outside a turn or without a writable memory.
    """
    _turn().add(text)


def _turn() -> MemoryTurn:
    turn = current.get(None)
    if turn is None:
        raise RuntimeError("Long-term memory belongs to an actor: call this inside a turn.")
    return turn
