"""Shows memories and the owner's notice to the model calls of a turn."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ..contract import is_blank
from ..log import describe
from .hits import Hit, InjectionContext, Shown
from .recall import MemoryTurn

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
    policy = turn.policy
    hits, texts, notice = list[Hit](), list[str](), ""
    try:
        found = await _found(turn, context, search)
        texts += [str(policy.format_memories(found))] if found else []
        hits += found
    except Exception as error:  # noqa: BLE001 (the turn goes on, whatever the owner's error)
        log.warning("no memories are shown: own_memory failed: %s", describe(error))
    try:
        notice = str(policy.notice(context) or "")
        texts.append(notice)
    except Exception as error:  # noqa: BLE001
        log.warning("no notice is shown: own_memory failed: %s", describe(error))
    turn.shown = Shown(hits, "\n\n".join(text for text in texts if not is_blank(text)), notice)
    turn.recalled += [hit.text for hit in hits if hit.text not in turn.recalled]
    return turn.shown


async def _found(turn: MemoryTurn, context: InjectionContext, search: Search) -> Sequence[Hit]:
    policy = turn.policy
    if not policy.is_shown(context):
        return []
    found = None if policy.searches_each_call else turn.first
    if found is None:
        query = policy.query(context)
        if is_blank(query):
            return []
        found = asyncio.ensure_future(search(query))
        if not policy.searches_each_call:
            turn.first = found
    # Another model call of the turn may wait for it, too.
    return (await asyncio.shield(found))[: policy.max_entries]
