"""Shows memories and the owner's notice to the model calls of a turn."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ..contract import is_blank
from ..log import describe
from . import injection
from .recall import Hit, InjectionContext, MemoryTurn, Shown

log = logging.getLogger(__name__)
Search = Callable[[str], Awaitable[Sequence[Hit]]]


async def show(
    turn: MemoryTurn, prompt: str, said: str, messages: Sequence[Any], search: Search
) -> Shown:
    """Return what the next model call of a turn is shown. Never raises.

    `said` is the text of the model's last step in this turn.
    """
    turn.calls += 1
    context = InjectionContext(turn.who, prompt, said, turn.calls, messages)
    try:
        hits = await _hits(turn, context, search)
        notice = injection.notice(context)
        texts = [injection.format_memories(hits) if hits else "", notice]
        turn.shown = Shown(hits, "\n\n".join(it for it in texts if not is_blank(it)), notice)
    except Exception as error:  # noqa: BLE001 (the turn goes on, whatever the owner's error)
        log.warning("nothing is shown to the model: memory/injection failed: %s", describe(error))
        turn.shown = Shown()
    turn.recalled.update((hit.text, hit) for hit in turn.shown.hits)
    return turn.shown


async def _hits(turn: MemoryTurn, context: InjectionContext, search: Search) -> Sequence[Hit]:
    trigger = injection.TRIGGER
    if callable(trigger) and not trigger(context):
        return []
    is_first = trigger != "userTurn" or not turn.searches
    query = injection.query(context) if is_first else next(iter(turn.searches))
    if is_blank(query):
        return []
    if query not in turn.searches:
        turn.searches[query] = asyncio.ensure_future(search(query))
    # Another model call of the turn may wait for it, too.
    return (await asyncio.shield(turn.searches[query]))[: injection.MAX_ENTRIES]
