"""Long-term memory for the AI SDK: the tools of a turn, and a model that sees memories."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Literal
from weakref import WeakKeyDictionary

import ai
from ai import events
from pydantic import PrivateAttr

from .. import memory
from ..contract import is_blank
from ..offline_model import OfflineModel
from . import agentcore
from .agentcore import Clients
from .base import Record, Utterance
from .namespaces import Namespace, Who
from .recall import Hit, MemoryTurn, current, memory_block
from .record import Recorder
from .settings import MemorySettings

__all__ = ["AgentCore", "Clients", "prepare", "record"]
RECALLS = WeakKeyDictionary[MemoryTurn, asyncio.Task[list[Hit]]]()


class AgentCore(agentcore.AgentCore):
    """A memory that the AWS client searches."""

    async def retrieve(
        self, who: Who, namespace: Namespace, query: str, limit: int
    ) -> list[Record]:
        more = {"searchCriteria": {"searchQuery": query, "topK": limit}, "maxResults": limit}
        reply = await self.call("recall", "retrieve_memory_records", **namespace.parameter, **more)
        return [
            Record(
                id=summary["memoryRecordId"],
                text=summary["content"].get("text", ""),
                score=summary.get("score", 0.0),
                namespace=next(iter(summary["namespaces"]), ""),
                created_at=summary["createdAt"].isoformat(),
            )
            for summary in reply["memoryRecordSummaries"]
        ]


@ai.tool
async def search_memory(query: str) -> str:
    """Search long-term memory for facts, preferences or context of earlier conversations."""
    return json.dumps([_entry(hit) for hit in await memory.search(query)], ensure_ascii=False)


@ai.tool
async def add_memory(entries: list[str]) -> str:
    """Add facts, preferences or decisions that are worth recalling in later conversations."""
    for text in entries:
        memory.add(text)
    return json.dumps({"stored": len(entries)})


class RecallingProvider(ai.Provider[None]):
    """The provider of a model that sees the memories of its turn, in each of its calls."""

    provider_class_id: Literal["recalling"] = "recalling"
    _model: ai.Model = PrivateAttr()

    async def stream(
        self, model: ai.Model, messages: list[ai.messages.Message], **options: Any
    ) -> AsyncGenerator[events.Event]:
        inner, turn, hits = self._model, current.get(None), list[Hit]()
        last = max((n for n, m in enumerate(messages) if m.role == "user"), default=None)
        if turn and last is not None:
            hits = await _recall(turn, messages[last].text)
        if type(inner) is OfflineModel:
            stream = _append_memories(inner.provider.stream(inner, messages, **options), hits)
        else:
            if hits and last is not None:
                # A copy: memories never become part of the session.
                block = ai.messages.TextPart(text=f"\n\n{memory_block(hits)}")
                asked = messages[last].model_copy(update={"parts": [*messages[last].parts, block]})
                messages = [*messages[:last], asked, *messages[last + 1 :]]
            stream = inner.provider.stream(inner, messages, **options)
        async with aclosing(stream):
            async for event in stream:
                yield event


async def _recall(turn: MemoryTurn, query: str) -> list[Hit]:
    """Search once per turn, for the query of its first model call."""
    if turn not in RECALLS:
        RECALLS[turn] = asyncio.create_task(turn.search(query))
    turn.shown = await asyncio.shield(RECALLS[turn])
    return turn.shown


async def _append_memories(
    stream: AsyncGenerator[events.Event], hits: Sequence[Hit]
) -> AsyncGenerator[events.Event]:
    """End the reply of the offline model with the memories."""
    async with aclosing(stream):
        async for event in stream:
            if isinstance(event, events.TextEnd):
                for hit in hits:
                    yield events.TextDelta(chunk=f' I remember: "{hit.text}"')
            yield event


def with_memory(model: ai.Model) -> ai.Model:
    """Return the model as turns use it: it sees memories."""
    own = model.provider
    provider = RecallingProvider(name=own.name, default_base_url=own.default_base_url)
    provider._model = model
    return ai.Model(id=model.id, provider=provider)


def prepare(turn: MemoryTurn, options: dict[str, Any], settings: MemorySettings) -> None:
    """Add memories and their tools to the options of the agent of a turn."""
    options["model"] = with_memory(options["model"])
    options["tools"] += [search_memory] if turn.readers else []
    options["tools"] += [add_memory] if settings.add_memory_tool and turn.is_writable else []


def record(recorder: Recorder, turn: MemoryTurn, messages: Sequence[ai.messages.Message]) -> None:
    """Record the texts of a committed turn, without those of tools."""
    texts: list[Utterance] = [
        ("USER" if message.role == "user" else "ASSISTANT", part.text)
        for message in messages
        for part in message.parts
        if part.kind == "text" and not is_blank(part.text)
    ]
    recorder.record(turn.who, [*texts, *turn.end()], turn.began)


def _entry(hit: Hit) -> dict[str, Any]:
    metadata = {"_id": hit.id, "_score": hit.score, "_createdAt": hit.created_at}
    metadata |= {"_namespaces": [hit.namespace]}
    return {"content": hit.text, "store_name": hit.collection, "metadata": metadata}
