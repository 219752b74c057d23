"""Select the memories and the owner's notice for each model call of a turn."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ..contract import is_blank
from .base import locate_failure
from .hits import Hit, Injection, InjectionContext
from .recall import MemoryTurn

log = logging.getLogger(__name__)
Search = Callable[[str], Awaitable[Sequence[Hit]]]


async def show(
    turn: MemoryTurn, prompt: str, said: str, messages: Sequence[Any], search: Search
) -> Injection:
    """Return the memories and the notice for the next model call of a turn. Never raises.

    `said` is the text of the model's previous step in this turn.
    """
    turn.calls += 1
    context = InjectionContext(turn.identity, prompt, said, turn.calls, messages)
    policy = turn.policy
    hits = list[Hit]()
    texts = list[str]()
    notice = ""
    try:
        memories = await _search_once(turn, context, search)
        texts += [str(policy.format_memories(memories))] if memories else []
        hits += memories
    except Exception as error:  # noqa: BLE001 (owner's code; the turn continues)
        log.warning("no memories are shown: own_memory failed: %s", locate_failure(error))
    try:
        notice = str(policy.notice(context) or "")
        texts.append(notice)
    except Exception as error:  # noqa: BLE001
        log.warning("no notice is shown: own_memory failed: %s", locate_failure(error))
    turn.injection = Injection(
        hits, "\n\n".join(text for text in texts if not is_blank(text)), notice
    )
    turn.recalled += [hit.text for hit in hits if hit.text not in turn.recalled]
    return turn.injection


async def _search_once(
    turn: MemoryTurn, context: InjectionContext, search: Search
) -> Sequence[Hit]:
    policy = turn.policy
    if not policy.is_shown(context):
        return []
    memories = None if policy.searches_each_call else turn.shared_search
    if memories is None:
        query = policy.query(context)
        if is_blank(query):
            return []
        memories = asyncio.ensure_future(search(query))
        if not policy.searches_each_call:
            turn.shared_search = memories
    # A cancelled model call must not cancel the search that other calls await.
    return (await asyncio.shield(memories))[: policy.max_entries]
