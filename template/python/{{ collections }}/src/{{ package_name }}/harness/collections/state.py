"""The capability that applies `state` of the agent file: limits the earlier turns a model sees.

The session still stores every turn: `/retry`, `replace_turn` and the page do not change.
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

CHARS_PER_TOKEN = 4  # an estimate: only the model's vendor can count tokens


class EarlierTurns(Capability):
    """Shows the model only the earlier turns that `state` allows."""

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
    """Return the visible messages of earlier turns, then this turn from the last prompt on."""
    starts = [at for at, message in enumerate(messages) if is_prompt(message)]
    if not starts:
        return [*messages]
    turns = [messages[start:end] for start, end in pairwise(starts)]
    if state.session_history == "ephemeral":
        turns = []
    if state.working_state == "ephemeral" or not state.scratchpad_visible_to_model:
        turns = [[turn[0], without_tools(turn[-1])] for turn in turns]
    remaining = inf if state.max_state_tokens is None else state.max_state_tokens
    for at in reversed(range(len(turns))):
        remaining -= -(-sum(map(size_of, turns[at])) // CHARS_PER_TOKEN)
        if remaining < 0:
            turns = turns[at + 1 :]
            break
    earlier = [message for turn in turns for message in turn]
    return [*messages[: starts[0]], *earlier, *messages[starts[-1] :]]
