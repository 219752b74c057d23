"""When committed turns are recorded, and which of their texts. Make this file your own."""

from collections.abc import Callable

from .base import Turns, Utterance
from .namespaces import Who

# So many turns of a session are recorded together. Or a function of the collection, the session
# and the turns that wait: whether they are recorded now. They never wait longer than this, and not
# when their session or process ends; a killed process loses them.
TRIGGER: int | Callable[[str, Who, Turns], bool] = 1
MAX_WAIT_SECONDS = 600


def is_recorded(who: Who, utterance: Utterance) -> bool:
    """Whether a text of a turn is recorded; one that raises is not, with a warning in the log."""
    return True
