"""Connect long-term memory to Strands: the memory manager of a turn and its stores."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine
from functools import partial
from itertools import count
from typing import Any

from strands import Agent
from strands import memory as sdk
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.models import Model
from strands.types.content import Message
from strands.types.streaming import StreamEvent
from strands.types.tools import AgentTool

from ..contract import is_blank
from ..deadline import time_limit
from ..echo_model import OfflineModel
from ..sessions.sessions import serialize
from .base import (
    MemoryCollection,
    MemoryRefused,
    Metadata,
    Utterance,
    describe_failure,
    locate_failure,
)
from .hits import Hit, best
from .policy import MemoryPolicy
from .recall import MAX_QUERY_CHARS, MemoryTurn, turn_context
from .record import MAX_CALLS, Recorder
from .settings import MemorySettings
from .show import show

log = logging.getLogger(__name__)
MAX_ENTRIES = 10_000  # effectively unlimited: files and stores set the limits
DEFAULT_RESULTS = 5  # for an owner's store without a limit
SEQUENCE = count()  # unique message numbers: turns may share a store
Remember = Callable[[str, list[str], Any], None]  # text, store names, metadata
IsErased = Callable[[], Awaitable[bool]]  # whether `forget` erased the actor of a turn


class CollectionStore(sdk.MemoryStore):
    """A collection as a store of the memory manager; the collection file limits the results."""

    max_search_results = None
    extraction = None

    def __init__(
        self, name: str, turn: MemoryTurn, readers: list[MemoryCollection], *, writable: bool
    ) -> None:
        self.name = name
        self.writable = writable
        self._turn = turn
        self._readers = readers
        self.description = turn.descriptions.get(name)

    async def search(
        self, query: str, options: sdk.SearchOptions | None = None
    ) -> list[sdk.MemoryEntry]:
        """Return matching memories, within a time limit. Never raises."""
        limit = (options or {}).get("max_search_results")
        return [
            sdk.MemoryEntry(
                hit.text,
                metadata={
                    "_id": hit.id,
                    "_score": hit.score,
                    "_createdAt": hit.created_at,
                    "_namespaces": [hit.namespace],
                },
            )
            for hit in (await self._turn.search(query, self._readers))[:limit]
        ]

    async def add(self, content: str, metadata: Any = None) -> None:
        """Queue text to store when the turn commits."""
        self._turn.add(content, [self.name], metadata)


class GuardedStore(sdk.MemoryStore):
    """An owner's store: searches have a time limit, and writes happen after a commit.

    The memory manager must not write to the store: it would also write failed turns. Text
    that a model adds goes to `remember` instead.
    """

    extraction = None

    def __init__(
        self, store: sdk.MemoryStore, seconds: float, remember: Remember | None = None
    ) -> None:
        self.name = store.name
        self.description = store.description
        can_add = getattr(type(store), "add", None) not in (None, sdk.MemoryStore.add)
        self.takes_texts = can_add and bool(getattr(store, "writable", False))
        self.writable = self.takes_texts and remember is not None
        self._remember = remember
        self.max_search_results = store.max_search_results
        self.store = store
        self._seconds = seconds
        self._is_ready = False

    async def search(
        self, query: str, options: sdk.SearchOptions | None = None
    ) -> list[sdk.MemoryEntry]:
        """Return matching memories, within a time limit. Never raises."""
        return await self._search(query, options, {})

    async def _search(
        self, query: str, options: sdk.SearchOptions | None, failures: dict[str, str]
    ) -> list[sdk.MemoryEntry]:
        limit = self.max_search_results or DEFAULT_RESULTS
        limit = min(limit, (options or {}).get("max_search_results") or limit)
        try:
            async with time_limit(self._seconds):
                await self._prepare()
                bounded = sdk.SearchOptions(max_search_results=limit)
                return await self.store.search(query[-MAX_QUERY_CHARS:], bounded)
        except TimeoutError:
            reason = message = f"no answer within {self._seconds} s"
        except Exception as error:  # noqa: BLE001 (the turn continues after any error)
            reason = describe_failure(error)
            message = locate_failure(error)
        log.warning("could not search store %s: %s", self.name, message)
        failures[self.name] = reason
        return []

    async def hits(self, query: str, limit: int | None, failures: dict[str, str]) -> list[Hit]:
        """Return the results of a search as hits. Never raises: adds errors to `failures`."""
        options = sdk.SearchOptions(max_search_results=limit) if limit else None
        return [_hit(entry, self.name) for entry in await self._search(query, options, failures)]

    async def add(self, content: str, metadata: Any = None) -> None:
        """Queue text to store when the turn commits."""
        if self._remember:
            self._remember(content, [self.name], metadata)

    async def send(self, text: str, metadata: Metadata, is_erased: IsErased | None = None) -> None:
        """Add text to the store now, unless `forget` erased its actor."""
        await self._prepare()
        if is_erased is None or not await is_erased():
            await self.store.add(text, dict(metadata) or None)

    def get_tools(self) -> list[AgentTool]:
        """Return the tools of the store."""
        return self.store.get_tools() if hasattr(self.store, "get_tools") else []

    def recording(
        self, messages: list[Message], model: Model, is_erased: IsErased
    ) -> Callable[[], Awaitable[None]]:
        """Return a function that records a turn in the store, unless `forget` erased its actor.

        A retry continues after the last success, and awaits late work instead of repeating it.
        """
        extraction: Any = getattr(self.store, "extraction", None)
        extractor = extraction.get("extractor") if isinstance(extraction, dict) else None
        method = getattr(type(self.store), "add_messages", None)
        if extractor is None and method in (None, sdk.MemoryStore.add_messages):  # facts only
            extractor = sdk.ModelExtractor()
        numbers = [next(SEQUENCE) for _ in messages]
        texts = [m for m in messages if any("text" in block for block in m["content"])]
        facts: deque[Any] | None = None
        calls = 0

        async def send() -> None:
            nonlocal calls, facts
            await self._prepare()
            if facts is None and await is_erased():
                return
            if extractor is None:
                await self.store.add_messages(messages, sdk.AddMessagesContext(numbers))
                return
            if facts is None:
                calls += 1
                context = sdk.ExtractorContext(default_model=model)
                try:
                    facts = deque(await extractor.extract(texts, context))
                except Exception as error:
                    if calls < MAX_CALLS:
                        raise
                    raise MemoryRefused(locate_failure(error)) from None
            while facts and not await is_erased():  # `forget` may have run meanwhile
                await self.store.add(facts[0].content, facts[0].metadata)
                facts.popleft()

        return retryable(send)

    async def _prepare(self) -> None:
        if not self._is_ready and hasattr(self.store, "initialize"):
            await self.store.initialize()
        self._is_ready = True


def retryable(send: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], Awaitable[None]]:
    """Return a function that retries failed work, and awaits work that is still running."""
    task: asyncio.Task[None] | None = None

    async def attempt() -> None:
        nonlocal task
        if task is None or (task.done() and task.exception()):
            task = asyncio.create_task(send())
        await asyncio.shield(task)

    return attempt


class TurnManager(sdk.MemoryManager):
    """The memory manager of a turn: adds memories to each model call."""

    async def init_agent(self, agent: Agent) -> None:
        """Add memories to the model calls of an agent."""
        await super().init_agent(agent)
        agent.add_middleware(InvokeModelStage.Input, self._show)

    async def _show(self, context: InvokeModelContext) -> InvokeModelContext:
        turn = turn_context.get()
        messages = context.messages
        users = [n for n, message in enumerate(messages) if message["role"] == "user"]
        place = max(n for n in users if "toolResult" not in messages[n]["content"][0])
        content = messages[place]["content"]
        after = messages[place + 1 :]
        steps = [_text(message) for message in after if message["role"] == "assistant"]
        said = steps[-1] if steps else ""
        injection = await show(turn, _text(messages[place]), said, messages, self._search)
        if not injection.text or isinstance(context.model, RecallingModel):
            return context
        # A copy: memories never become part of the session.
        prompt = messages[place].copy()
        prompt["content"] = [*content, {"text": f"\n\n{injection.text}"}]
        # In the last message, the model's cache point must precede the memories.
        trailing_blocks = context.dynamic_trailing_blocks + (place == len(messages) - 1)
        changed = [*messages[:place], prompt, *messages[place + 1 :]]
        return context.replace(messages=changed, dynamic_trailing_blocks=trailing_blocks)

    async def _search(self, query: str) -> list[Hit]:
        options = sdk.MemorySearchOptions(max_search_results=MAX_ENTRIES)
        entries = await self.search(query, options)
        return best([_hit(entry, entry.store_name or "") for entry in entries])


class RecallingModel(OfflineModel):
    """The echo model; its reply ends with the memories."""

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncIterable[StreamEvent]:
        turn = turn_context.get(None)
        is_call = False
        lines = turn.injection.lines if turn else []
        async for event in super().stream(*args, **kwargs):
            is_call = is_call or "toolUse" in event.get("contentBlockStart", {}).get("start", {})
            if "contentBlockStop" in event and not is_call:
                for text in lines:
                    yield {"contentBlockDelta": {"delta": {"text": text}}}
            yield event


def prepare(turn: MemoryTurn, options: dict[str, Any], settings: MemorySettings) -> None:
    """Add the memory manager to the options of the turn's agent."""
    if type(options["model"]) is OfflineModel:
        options["model"] = RecallingModel()
    turn.model = options["model"]
    readers = {reader.id: [reader] for reader in turn.readers}
    adds = turn.writers if settings.add_memory_tool else []
    stores: list[Any] = [
        CollectionStore(name, turn, readers.get(name, []), writable=name in adds)
        for name in dict.fromkeys([*readers, *adds])
    ]
    stores += turn.stores
    if stores:
        options["memory_manager"] = TurnManager(
            stores,
            search_tool_config=_search_tool(turn.policy),
            add_tool_config=any(store.writable for store in stores),
            injection=False,
        )


def _search_tool(policy: MemoryPolicy) -> sdk.MemoryToolConfig | bool:
    if policy.search_tool is None:
        return False
    if policy.search_description is None:
        return sdk.MemoryToolConfig(name=policy.search_tool)
    return sdk.MemoryToolConfig(name=policy.search_tool, description=policy.search_description)


def stores_for(turn: MemoryTurn, settings: MemorySettings) -> list[Any]:
    """Return the owner's stores for a turn."""
    remember = turn.add if settings.add_memory_tool else None
    seconds = settings.recall_timeout_seconds
    return [
        GuardedStore(store, seconds, remember) for store in turn.policy.own_stores(turn.identity)
    ]


def record(recorder: Recorder, turn: MemoryTurn, messages: list[Message]) -> None:
    """Record a committed turn: its texts in collections, its messages in the owner's stores."""
    texts: list[Utterance] = [
        Utterance("USER" if message["role"] == "user" else "ASSISTANT", block["text"])
        for message in messages
        for block in message["content"]
        if not is_blank(block.get("text", ""))
    ]
    added = turn.end()
    recorder.record(turn.identity, [*texts, *added], turn.started_at)
    is_erased = partial(recorder.is_forgotten, turn.identity.actor, turn.started_at)
    for guarded in turn.stores:
        name = f"store {guarded.name}"
        if getattr(guarded.store, "writable", False):
            work = guarded.recording(messages, turn.model, is_erased)
            size = len(serialize(messages))
            recorder.put(name, turn.identity, work, size)
        for text in added if guarded.takes_texts else []:
            if text.is_for(guarded.name):
                work = retryable(partial(guarded.send, text.text, text.metadata, is_erased))
                recorder.put(name, turn.identity, work, len(text.text.encode()))


def _text(message: Message) -> str:
    return "\n".join(block["text"] for block in message["content"] if "text" in block)


def _hit(entry: sdk.MemoryEntry, collection: str) -> Hit:
    """Return a store's entry as a hit; the score defaults to 0."""
    metadata = entry.metadata or {}
    return Hit(
        text=entry.content,
        score=metadata.get("_score", 0.0),
        namespace=next(iter(metadata.get("_namespaces", [])), ""),
        collection=collection,
        created_at=str(metadata.get("_createdAt", "")),
        id=metadata.get("_id", ""),
    )
