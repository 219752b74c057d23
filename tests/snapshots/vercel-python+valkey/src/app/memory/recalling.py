"""Long-term memory for an agent of the AI SDK: its tools, and what its model is shown."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal

import ai
from ai import events
from pydantic import PrivateAttr

from .. import memory
from ..agent import TOOLS
from ..offline_model import OfflineModel
from .long_term import LongTerm, Turn, current
from .messages import spoken
from .options import Options
from .recall import Found, block

ARGUMENTS = {"search_memory": "query", "add_memory": "entries"}


@ai.tool
async def search_memory(query: str) -> str:
    """Search long-term memory for facts, preferences or context of earlier conversations."""
    found = [_entry(one) for one in await memory.search(query)]
    return json.dumps(found, ensure_ascii=False)


@ai.tool
async def add_memory(entries: list[str]) -> str:
    """Add facts, preferences or decisions that are worth recalling in later conversations."""
    for text in entries:
        memory.add(text)
    return json.dumps({"stored": len(entries)})


class Remembering(ai.Provider[None]):
    """The provider of a model that is shown what is remembered, in each of its calls."""

    provider_class_id: Literal["remembering"] = "remembering"
    _model: ai.Model = PrivateAttr()

    async def stream(
        self, model: ai.Model, messages: list[ai.messages.Message], **options: Any
    ) -> AsyncGenerator[events.Event]:
        turn, inner = current.get(None), self._model
        asked_at = [n for n, message in enumerate(messages) if message.role == "user"]
        last = asked_at[-1] if asked_at else 0
        found = await turn.recall.once(messages[last].text) if turn and asked_at else []
        is_offline, calls = type(inner) is OfflineModel, ""
        if text := "" if is_offline else block(found):
            # A copy: what is remembered is never part of the session.
            parts = [*messages[last].parts, ai.messages.TextPart(text=f"\n\n{text}")]
            asked = messages[last].model_copy(update={"parts": parts})
            messages = [*messages[:last], asked, *messages[last + 1 :]]
        async with aclosing(inner.provider.stream(inner, messages, **options)) as stream:
            async for event in stream:
                if is_offline and isinstance(event, events.TextEnd):
                    for one in found:
                        yield events.TextDelta(chunk=f' I remember: "{one.text}"')
                calls = event.tool_name if isinstance(event, events.ToolStart) else calls
                if is_offline and isinstance(event, events.ToolDelta) and calls in ARGUMENTS:
                    told = json.loads(event.chunk)["text"]
                    value = [told] if calls == "add_memory" else told
                    event = events.ToolDelta(
                        tool_call_id=event.tool_call_id, chunk=json.dumps({ARGUMENTS[calls]: value})
                    )
                yield event


def with_memory(model: ai.Model) -> ai.Model:
    """The model as turns use it: it is shown what is remembered."""
    own = model.provider
    provider = Remembering(name=own.name, default_base_url=own.default_base_url)
    provider._model = model
    return ai.Model(id=model.id, provider=provider)


def prepare(long_term: LongTerm) -> None:
    """Begin to make what the first turn would have to wait for."""
    long_term.prepare()


def agent_options(long_term: LongTerm, turn: Turn, options: Options) -> dict[str, Any]:
    """What the agent of a turn is made with."""
    more = [search_memory] if long_term.readers else []
    more += [add_memory] if options.add_memory_tool and long_term.is_writable else []
    return {"tools": [*TOOLS, *more]} if more else {}


def record(
    long_term: LongTerm, turn: Turn, messages: list[ai.messages.Message], model: ai.Model
) -> None:
    """Hear what a committed turn added."""
    long_term.record(turn, spoken(messages))


def _entry(found: Found) -> dict[str, Any]:
    names = {"_id": found.id, "_score": found.score, "_createdAt": found.created_at}
    metadata = names | {"_namespaces": [found.namespace]}
    return {"content": found.text, "store_name": found.collection, "metadata": metadata}
