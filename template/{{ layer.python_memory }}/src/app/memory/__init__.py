"""Memory collections: declared in files, checked, and kept in a store of the owner's choice.

For the agent's own code, as in its tools: what is remembered long-term of whoever talks.
"""

from .long_term import Turn, current
from .recall import Found

__all__ = ["Found", "add", "search"]


async def search(query: str) -> list[Found]:
    """What is remembered of whoever talks, best first; [] also when the memory does not answer.

    Raises RuntimeError outside turns: there, LongTerm.search takes who it is about.
    """
    return await _turn().recall.search(query)


def add(text: str) -> None:
    """Remember a text of whoever talks, when the turn commits.

    Raises ValueError for a blank text, and RuntimeError outside turns and without a memory that
    may be written to.
    """
    _turn().add(text)


def _turn() -> Turn:
    turn = current.get(None)
    if turn is None:
        raise RuntimeError("Only a turn knows whose memory it is; LongTerm.search and add ask who.")
    return turn
