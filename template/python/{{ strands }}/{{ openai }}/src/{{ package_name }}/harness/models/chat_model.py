"""OpenAI's client as a model of Strands."""

import json
import mimetypes
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from copy import copy
from importlib import import_module
from types import SimpleNamespace
from typing import Any, cast

from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from strands.models.openai import OpenAIModel
from strands.types.content import Messages
from strands.types.streaming import StreamEvent

from ..contract import AgentError
from ..settings import CoreSettings
from .chat_stream import event_hooks, visible_reasoning, with_raw_messages

REASONS = {"stop", "tool_calls", "length", "content_filter"}
# The fields in which servers send reasoning. Some require it back with the tool calls.
TEXTS = ("reasoning_content", "reasoning")
LISTS = ("reasoning_details",)
mimetypes.add_type("image/webp", ".webp")  # for the base class; Python 3.12 does not know it

# Signals the start of reasoning or of a tool call. Unsigned reasoning is not stored.
START_MARK = " "


class ChatModel(OpenAIModel):
    """The Chat Completions API of OpenAI, Ollama, vLLM and others."""

    def __init__(self, settings: CoreSettings, **options: Any) -> None:
        super().__init__(model_id=settings.model, **options)
        # Your own server may need no key, but the client requires a key.
        key = os.environ.get("OPENAI_API_KEY") or "none"
        http = DefaultAsyncHttpxClient(event_hooks=event_hooks(settings))
        self._openai = AsyncOpenAI(api_key=key, http_client=http)
        # Otherwise the client would import it in the first turn and block all other turns.
        import_module("openai.resources.chat.chat")
        self._max_bytes = settings.max_reply_bytes
        self._reasoning = Reasoning()

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[StreamEvent]:
        call = copy(self)  # the base class has no state per call
        call._reasoning = Reasoning()
        async with aclosing(super(ChatModel, call).stream(*args, **kwargs)) as events:
            async for event in events:
                start: Any = event.get("contentBlockStart", {}).get("start")
                if start and (data := call._reasoning.take()):
                    delta: Any = {"reasoningContent": {"redactedContent": data}}
                    yield {"contentBlockStart": {"start": {}}}
                    yield {"contentBlockDelta": {"delta": delta}}
                    yield {"contentBlockStop": {}}
                yield event

    def format_request(self, messages: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        blocks = [
            {
                **message,
                "content": [
                    _with_file_name(block)
                    for block in message["content"]
                    if "reasoningContent" not in block
                ],
            }
            for message in messages
        ]
        request = super().format_request(cast(Messages, blocks), *args, **kwargs)
        if not request["tools"]:  # OpenAI rejects an empty list
            del request["tools"]
        with_calls = (m for m in messages if any("toolUse" in block for block in m["content"]))
        formatted = (message for message in request["messages"] if message.get("tool_calls"))
        for message, target in zip(with_calls, formatted, strict=True):
            for block in message["content"]:
                if data := block.get("reasoningContent", {}).get("redactedContent"):
                    restore(data, target)
        return request

    @asynccontextmanager
    async def _get_client(self) -> AsyncIterator[Any]:
        # The base class creates a client per call because it does not close responses.
        async with AsyncExitStack() as stack:

            async def create(**request: Any) -> Any:
                completions: Any = self._openai.chat.completions
                response = await completions.create(**with_raw_messages(request))
                return self._limit(await stack.enter_async_context(response))

            # Omit `beta`: it takes a third of a second to import, and no turn needs it.
            yield SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))

    async def _limit(self, chunks: AsyncIterator[Any]) -> AsyncGenerator[Any]:
        # The base class keeps the arguments of tool calls until the end.
        size = 0
        has_begun = False
        async for chunk in chunks:
            for choice in chunk.choices or []:
                text = self._reasoning.add(choice.delta)
                if not has_begun and (choice.delta.tool_calls or self._reasoning):
                    text = text or START_MARK
                    has_begun = True
                choice.delta.reasoning_content = text
                for call in choice.delta.tool_calls or []:
                    size += len(call.function.arguments or "")
            if size > self._max_bytes:
                raise AgentError("reply_incomplete", detail="MAX_REPLY_BYTES")
            yield chunk

    def format_chunk(self, event: dict[str, Any], **kwargs: Any) -> StreamEvent:
        # The base class accepts streams without a finish reason and with an unknown reason.
        if event["chunk_type"] == "message_stop" and event["data"] == "end_turn":
            raise ConnectionError("the stream ended without a finish reason")
        if event["chunk_type"] == "message_stop" and event["data"] not in REASONS:
            return {"messageStop": {"stopReason": event["data"]}}
        chunk = super().format_chunk(event, **kwargs)
        if "metadata" in chunk:  # other Strands models count cached tokens separately
            usage = chunk["metadata"]["usage"]
            cached = usage.get("cacheReadInputTokens", 0) + usage.get("cacheWriteInputTokens", 0)
            usage["inputTokens"] -= cached
        return chunk


def _with_file_name(block: Any) -> Any:
    """Return a block in which a document has a file name."""
    document = block.get("document")
    if not document:
        return block
    return {"document": {**document, "name": f"{document['name']}.{document['format']}"}}


class Reasoning:
    """Reasoning and extra fields that a server may require back with its tool calls."""

    def __init__(self) -> None:
        self._parts = dict[str, list[Any]]()  # by the name of the field
        self._calls = dict[int, int]()  # the position of each call, by its index
        self._extras = dict[int, Any]()  # of calls, for example Gemini's thought signature

    def add(self, delta: Any) -> str:
        """Move the reasoning out of a part of an answer; return its readable text."""
        text = visible_reasoning({name: getattr(delta, name, None) for name in (*TEXTS, *LISTS)})
        for name in (*TEXTS, *LISTS):
            value = getattr(delta, name, None)
            if isinstance(value, str) and name in TEXTS:
                self._parts.setdefault(name, []).append(value)
            if isinstance(value, list) and name in LISTS:
                self._parts.setdefault(name, []).extend(value)
            if value is not None:
                setattr(delta, name, None)
        for call in delta.tool_calls or []:
            place = self._calls.setdefault(call.index, len(self._calls))
            if extra := getattr(call, "extra_content", None):
                self._extras[place] = extra
        return text

    def __bool__(self) -> bool:
        return any(any(parts) for parts in self._parts.values())

    def take(self) -> bytes:
        """Return and clear all fields; return b"" if there are no fields."""
        fields = {
            name: "".join(parts) if name in TEXTS else _joined(parts)
            for name, parts in self._parts.items()
        }
        data = {"fields": fields, "extras": list(self._extras.items())}
        self._parts = {}
        self._extras = {}
        return json.dumps(data).encode() if any(data.values()) else b""


def _joined(parts: list[Any]) -> list[Any]:
    """Join the parts of OpenRouter's details, whose texts are split."""
    runs = list[list[Any]]()
    for part in parts:
        if runs and _continues(runs[-1][0], part):
            runs[-1].append(part)
        else:
            runs.append([part])
    return [run[0] if len(run) == 1 else _merged(run) for run in runs]


def _continues(first: Any, part: Any) -> bool:
    if not isinstance(first, dict) or not isinstance(part, dict):
        return False
    return all(part.get(key) == first.get(key, "") for key in ("index", "type"))


def _merged(run: list[dict[str, Any]]) -> dict[str, Any]:
    merged = dict[str, Any]()
    for part in run:
        merged |= part
    for key in ("text", "summary"):
        texts = [part[key] for part in run if isinstance(part.get(key), str)]
        if texts:
            merged[key] = "".join(texts)
    return merged


def restore(data: bytes, message: dict[str, Any]) -> None:
    """Add the reasoning and extra fields of the calls to a message of a request."""
    saved = json.loads(data)
    message |= saved["fields"]
    for index, extra in saved["extras"]:
        message["tool_calls"][index]["extra_content"] = extra
