"""Anthropic's client as a model of Strands."""

from base64 import b64decode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from anthropic import DefaultAsyncHttpxClient
from strands.models import CacheConfig
from strands.models.anthropic import AnthropicModel
from strands.types.streaming import StreamEvent

from ..contract import AgentError
from ..settings import CoreSettings
from .provider import event_hooks

DELTAS = {
    "citations_delta",
    "input_json_delta",
    "redacted_thinking",
    "signature_delta",
    "text_delta",
    "thinking_delta",
}


class ClaudeModel(AnthropicModel):
    """The Messages API of Anthropic and of proxies."""

    def __init__(self, settings: CoreSettings, **options: Any) -> None:
        http = DefaultAsyncHttpxClient(event_hooks=event_hooks(settings))
        super().__init__(
            client_args={"http_client": http},
            model_id=settings.model,
            cache_config=CacheConfig() if settings.prompt_cache else None,
            **options,
        )
        self.client: Any = _Client(self.client)

    def format_chunk(self, event: dict[str, Any]) -> StreamEvent:
        block = event.get("content_block") or {}
        if block.get("type") == "tool_use":  # the base class drops the input
            names = {"name": "name", "toolUseId": "id", "input": "input"}
            use: Any = {key: block.get(name) for key, name in names.items()}
            start: Any = {"contentBlockIndex": event["index"], "start": {"toolUse": use}}
            return {"contentBlockStart": start}
        delta = event.get("delta") or {}
        if delta.get("type") == "redacted_thinking":
            reasoning: Any = {"redactedContent": delta["data"].encode()}
            return {"contentBlockDelta": {"delta": {"reasoningContent": reasoning}}}
        return super().format_chunk(event)


class _Client:
    """The client, with streams that do not parse the arguments of tool calls."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.messages = _Messages(client.messages)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class _Messages:
    def __init__(self, messages: Any) -> None:
        self._messages = messages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._messages, name)

    @asynccontextmanager
    async def stream(self, **request: Any) -> AsyncGenerator["Events"]:
        if not request.get("tools"):  # the base class sends an empty list
            request.pop("tools", None)
        for message in request["messages"]:
            for block in message["content"]:
                if block["type"] == "redacted_thinking":  # the base class encodes the text
                    block["data"] = b64decode(block["data"]).decode()
        async with await self._messages.create(**request, stream=True) as response:
            yield Events(response)


class Events:
    """The events of an answer.

    The client's own helper raises an error for arguments that are not JSON.
    """

    def __init__(self, response: Any) -> None:
        self._response = response
        self._usage = dict[str, int]()

    async def __aiter__(self) -> AsyncGenerator[Any]:
        reason = None
        async for event in self._response:
            if event.type == "message_stop":
                break
            if event.type == "message_start":
                self._count(event.message)
                yield event
            elif event.type == "message_delta":
                self._count(event)
                reason = event.delta.stop_reason or reason
            elif event.type != "content_block_delta" or event.delta.type in DELTAS:
                yield event
                if event.type == "content_block_start":
                    for delta in _deltas(event.content_block):
                        yield _Delta(event.index, delta)
        if reason == "pause_turn":
            raise AgentError("reply_incomplete", detail=reason)
        if reason:  # without a reason the stream broke
            message = SimpleNamespace(stop_reason=reason)
            yield SimpleNamespace(type="message_stop", message=message)

    async def get_final_message(self) -> Any:
        """Return a message with the usage, the only field that the base class reads."""
        usage = {"input_tokens": 0, "output_tokens": 0} | self._usage if self._usage else {}
        return SimpleNamespace(usage=SimpleNamespace(model_dump=lambda: usage))

    def _count(self, holder: Any) -> None:
        if usage := getattr(holder, "usage", None):
            counts = usage.model_dump()
            self._usage |= {key: n for key, n in counts.items() if isinstance(n, int)}


class _Delta:
    """Content from the start of a block, as a delta."""

    type = "content_block_delta"

    def __init__(self, index: int, delta: dict[str, str]) -> None:
        self.index = index
        self._delta = delta

    def model_dump(self) -> dict[str, Any]:
        return {"type": self.type, "index": self.index, "delta": {**self._delta}}


def _deltas(block: Any) -> list[dict[str, str]]:
    """Return the content of a block's start as deltas."""
    if block.type == "redacted_thinking":
        return [{"type": "redacted_thinking", "data": block.data}]
    fields = {"text": ["text"], "thinking": ["thinking", "signature"]}.get(block.type, [])
    texts = {name: getattr(block, name, "") for name in fields}
    return [{"type": f"{name}_delta", name: text} for name, text in texts.items() if text]
