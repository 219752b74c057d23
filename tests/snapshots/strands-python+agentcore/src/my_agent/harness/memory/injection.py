"""What of long-term memory a model is shown, and when. Make this file your own.

A function that raises costs no turn: what it is for is not shown, with a warning in the log.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from .recall import Hit, InjectionContext, memory_block

# "userTurn": what one search at the first model call of a turn finds is shown in each of its calls.
# "everyTurn": each model call has a search of its own. Or a function: whether a call is shown any.
TRIGGER: Literal["userTurn", "everyTurn"] | Callable[[InjectionContext], bool] = "userTurn"

# The most memories to show; None: as many as the files of the collections allow.
MAX_ENTRIES: int | None = None


def query(context: InjectionContext) -> str:
    """Return the text to search for; for "" nothing is searched, and no memory is shown."""
    return context.prompt if TRIGGER == "userTurn" else context.said or context.prompt


def format_memories(hits: Sequence[Hit]) -> str:
    """Return memories, best first, as text for a model. Users wrote them: escape their texts."""
    return memory_block(hits)


def notice(context: InjectionContext) -> str:
    """Return further text for a model call that is no memory, such as the time; "" for none.

    It stands behind the prompt where memories would, and never becomes part of the session.
    """
    return ""
