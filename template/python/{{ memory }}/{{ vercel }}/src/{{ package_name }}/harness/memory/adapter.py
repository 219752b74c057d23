"""Connect long-term memory to the AI SDK: the tools of a turn, and a model with memories."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal

import ai
from ai import events
from pydantic import PrivateAttr

from ..contract import is_blank
from ..echo_model import OfflineModel
from .base import Utterance
from .hits import Hit, Injection
from .in_turn import add, search
from .recall import MemoryTurn, turn_context
from .record import Recorder
from .settings import MemorySettings
from .show import show


@ai.tool
async def search_memory(
    query: str, max_search_results: int | None = None, stores: list[str] | None = None
) -> str:
    """Search long-term memory for facts, preferences or context of earlier conversations.

    Searches the named stores or all, for at most `max_search_results` entries per store.
    """
    found = await search(query, stores=stores, max_search_results=max_search_results)
    return json.dumps([_entry(hit) for hit in found], ensure_ascii=False)


@ai.tool
async def add_memory(entries: list[str], stores: list[str] | None = None) -> str:
    """Add facts, preferences or decisions that are worth recalling in later conversations.

    Adds them to the named stores or all, when the turn commits.
    """
    for text in entries:
        add(text, stores=stores)
    return json.dumps({"stored": len(entries)})


class RecallingProvider(ai.Provider[None]):
    """Adds the turn's memories to each call of a model."""

    provider_class_id: Literal["recalling"] = "recalling"
    _model: ai.Model = PrivateAttr()

    async def stream(
        self, model: ai.Model, messages: list[ai.messages.Message], **options: Any
    ) -> AsyncGenerator[events.Event]:
        inner = self._model
        turn = turn_context.get(None)
        injection = Injection()
        last = max((n for n, m in enumerate(messages) if m.role == "user"), default=None)
        if turn and last is not None:
            steps = [m.text for m in messages[last + 1 :] if m.role == "assistant"]
            said = steps[-1] if steps else ""
            injection = await show(turn, messages[last].text, said, messages, turn.search)
        if type(inner) is OfflineModel:
            stream = _append(inner.provider.stream(inner, messages, **options), injection)
        else:
            if injection.text and last is not None:
                # A copy: memories never become part of the session.
                block = ai.messages.TextPart(text=f"\n\n{injection.text}")
                prompt = messages[last].model_copy(update={"parts": [*messages[last].parts, block]})
                messages = [*messages[:last], prompt, *messages[last + 1 :]]
            stream = inner.provider.stream(inner, messages, **options)
        async with aclosing(stream):
            async for event in stream:
                yield event


async def _append(
    stream: AsyncGenerator[events.Event], injection: Injection
) -> AsyncGenerator[events.Event]:
    """Append the memories and the notice to the echo model's reply."""
    async with aclosing(stream):
        async for event in stream:
            if isinstance(event, events.TextEnd):
                for text in injection.lines:
                    yield events.TextDelta(chunk=text)
            yield event


def with_memory(model: ai.Model) -> ai.Model:
    """Return a model that receives the memories of its turn."""
    wrapped = model.provider
    provider = RecallingProvider(name=wrapped.name, default_base_url=wrapped.default_base_url)
    provider._model = model
    return ai.Model(id=model.id, provider=provider)


def prepare(turn: MemoryTurn, options: dict[str, Any], settings: MemorySettings) -> None:
    """Add memories and memory tools to the options of the turn's agent."""
    tools = list[Any]()
    policy = turn.policy
    if turn.readers and policy.search_tool:
        names = [reader.id for reader in turn.readers]
        description = policy.search_description
        tools.append(_with_stores(search_memory, names, turn, policy.search_tool, description))
    has_add_tool = settings.add_memory_tool > 0 and bool(turn.writers)
    if has_add_tool:
        tools.append(_with_stores(add_memory, turn.writers, turn, "add_memory"))
    if turn.readers or has_add_tool:
        options["tools"] += tools
        options["model"] = with_memory(options["model"])


def record(recorder: Recorder, turn: MemoryTurn, messages: Sequence[ai.messages.Message]) -> None:
    """Record the texts of a committed turn, without tool results."""
    texts: list[Utterance] = [
        Utterance("USER" if message.role == "user" else "ASSISTANT", part.text)
        for message in messages
        for part in message.parts
        if part.kind == "text" and not is_blank(part.text)
    ]
    recorder.record(turn.identity, [*texts, *turn.end()], turn.started_at)


def _with_stores(
    tool: Any, names: Sequence[str], turn: MemoryTurn, name: str, description: str | None = None
) -> Any:
    """Return a copy of a tool with this name, and with the stores in its description."""
    lines = [f"- {store}: {turn.descriptions.get(store, '')}" for store in names]
    text = "\n".join([description or tool.tool.spec.description, "", "Stores:", *lines])
    spec = tool.tool.spec.model_copy(update={"description": text})
    return replace(tool, tool=tool.tool.model_copy(update={"name": name, "spec": spec}))


def stores_for(turn: MemoryTurn, settings: MemorySettings) -> list[Any]:
    """Return the owner's stores for a turn: always empty, because the AI SDK has no stores."""
    return []


def _entry(hit: Hit) -> dict[str, Any]:
    metadata = {"_id": hit.id, "_score": hit.score, "_createdAt": hit.created_at}
    metadata |= {"_namespaces": [hit.namespace]}
    return {"content": hit.text, "store_name": hit.collection, "metadata": metadata}
