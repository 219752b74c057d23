"""What a model sees of earlier turns: the section `state` of the agent's file, as a capability.

The session keeps all of them: `/retry`, `replace_turn` and the page work as without the section.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from math import inf
from typing import Any

from ..capability import Capability
from ..contract import Turn
from ..modules import LoadModules
from ..settings import CoreSettings
from . import adapter
from .capability import Declarations
from .models import State

CHARS_PER_TOKEN = 4  # an estimate, as only the vendor of a model can count them


class EarlierTurns(Capability):
    """Shows the model of each turn what `state` allows."""

    def __init__(
        self, settings: CoreSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self._before = before

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        state = Declarations.find(self._before).project.state
        if state != State():
            adapter.show_only(options, partial(visible, state))


def visible(
    state: State,
    messages: Sequence[Any],
    is_prompt: Callable[[Any], bool],
    without_tools: Callable[[Any], Any],
    size_of: Callable[[Any], int],
) -> list[Any]:
    """Return the messages of this turn, which begins with the last prompt, and of earlier ones."""
    starts = [at for at, message in enumerate(messages) if is_prompt(message)]
    if not starts:
        return [*messages]
    turns = [messages[start:end] for start, end in pairwise(starts)]
    if state.session_history == "ephemeral":
        turns = []
    if state.working_state == "ephemeral" or not state.scratchpad_visible_to_model:
        turns = [[turn[0], without_tools(turn[-1])] for turn in turns]
    left = inf if state.max_state_tokens is None else state.max_state_tokens
    for at in reversed(range(len(turns))):
        left -= -(-sum(map(size_of, turns[at])) // CHARS_PER_TOKEN)
        if left < 0:
            turns = turns[at + 1 :]
            break
    earlier = [message for turn in turns for message in turn]
    return [*messages[: starts[0]], *earlier, *messages[starts[-1] :]]
