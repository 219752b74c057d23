"""Long-term memory for an agent of Strands: its memory manager, and what its stores are told."""

import json
from collections.abc import AsyncIterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from threading import Thread
from typing import Any

from strands.memory import (
    InjectionFormatContext,
    MemoryAddToolConfig,
    MemoryInjectionConfig,
    MemoryManager,
)
from strands.models import Model
from strands.types.content import Messages
from strands.types.streaming import StreamEvent

from ..offline_model import OfflineModel
from .agentcore import AgentCore
from .collection_store import SDK, CollectionStore, read_entry
from .long_term import LongTerm, Turn
from .messages import spoken
from .options import Options
from .own_stores import own_stores
from .owned import Owned
from .recall import Found, block

ALL = 10_000  # entries: how many there are at most, the files say
ARGUMENTS = {"search_memory": "query", "add_memory": "entries"}


@dataclass
class _Shown:
    """What the model was shown in a turn, and which stores of the owner's it has."""

    found: list[Found] = field(default_factory=list)
    owned: list[Owned] = field(default_factory=list)


shown: ContextVar[_Shown] = ContextVar("shown")


class Remembering(OfflineModel):
    """The offline model: it says what it remembers after all else."""

    async def stream(self, messages: Messages, *_: Any, **__: Any) -> AsyncIterable[StreamEvent]:
        found = known.found if (known := shown.get(None)) else []
        last = messages[-1]
        if found and last["content"][-1].get("text", "").strip() == block(found):
            messages = [*messages[:-1], {**last, "content": last["content"][:-1]}]
        calls = ""
        async for event in super().stream(messages):
            start: Any = event.get("contentBlockStart", {}).get("start", {})
            calls = start["toolUse"]["name"] if "toolUse" in start else calls
            if "contentBlockStop" in event and not calls:
                for text in [f' I remember: "{one.text}"' for one in found]:
                    yield {"contentBlockDelta": {"delta": {"text": text}}}
            if "contentBlockDelta" in event and calls in ARGUMENTS:
                use: Any = event["contentBlockDelta"]["delta"]["toolUse"]
                text = json.loads(use["input"])["text"]
                value = [text] if calls == "add_memory" else text
                use["input"] = json.dumps({ARGUMENTS[calls]: value})
            yield event


def with_memory(model: Model) -> Model:
    """The model as turns use it."""
    return Remembering() if type(model) is OfflineModel else model


def prepare(long_term: LongTerm) -> None:
    """Begin to make what the first turn would have to wait for."""
    long_term.prepare()
    if any(isinstance(memory, AgentCore) for memory in long_term.memories.values()):
        Thread(target=import_module, args=(SDK,), daemon=True).start()


def agent_options(long_term: LongTerm, turn: Turn, options: Options) -> dict[str, Any]:
    """What the agent of a turn is made with."""
    owned = [Owned(store, options.recall_timeout_seconds) for store in own_stores(turn.who)]
    shown.set(_Shown(owned=owned))
    readers = {one.collection_id: [one] for one in long_term.readers}
    adds = bool(options.add_memory_tool) and long_term.is_writable
    if adds and not readers:
        readers = {next(iter(long_term.memories)): []}
    stores: list[Any] = [
        CollectionStore(name, turn, some, writable=adds and name == next(iter(readers)))
        for name, some in readers.items()
    ]
    if not stores + owned:
        return {}
    injection = MemoryInjectionConfig(max_entries=ALL, format=_show)
    tool: Any = MemoryAddToolConfig() if adds else False
    manager = MemoryManager([*stores, *owned], add_tool_config=tool, injection=injection)
    return {"memory_manager": manager}


def record(long_term: LongTerm, turn: Turn, messages: Messages, model: Model) -> None:
    """Hear what a committed turn added: the collections are told what was said, the stores all."""
    long_term.record(turn, spoken(messages))
    for one in shown.get().owned:
        if getattr(one.store, "writable", False):
            size = len(json.dumps(messages, default=str))
            long_term.recorder.put(f"store {one.name}", one.telling(messages, model), size)


def _show(context: InjectionFormatContext) -> str:
    best: dict[str, Found] = {}
    found = [read_entry(entry, entry.store_name or "") for entry in context.entries]
    for one in sorted(found, key=lambda one: -one.score):
        best.setdefault(one.text, one)
    shown.get().found = [*best.values()]
    return block(shown.get().found)
