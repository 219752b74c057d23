"""OpenAI's client as a model of Strands."""

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from threading import Thread
from types import SimpleNamespace
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from strands.models.openai import OpenAIModel
from strands.types.streaming import StreamEvent

from .chat_stream import event_hooks
from .contract import AgentError
from .settings import CoreSettings

REASONS = {"stop", "tool_calls", "length", "content_filter"}


class ChatModel(OpenAIModel):
    """OpenAI's Chat Completions, as OpenAI, Ollama, vLLM and others serve them."""

    def __init__(self, settings: CoreSettings) -> None:
        super().__init__(model_id=settings.model)
        # A server of your own may want no key, but the client requires a key.
        key = os.environ.get("OPENAI_API_KEY") or "none"
        http = DefaultAsyncHttpxClient(event_hooks=event_hooks(settings))
        self._openai = AsyncOpenAI(api_key=key, http_client=http)
        # What a call needs is loaded while the server starts, and not in the first turn.
        Thread(target=lambda: self._openai.chat.completions, daemon=True).start()
        self._max_bytes = settings.max_reply_bytes

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[StreamEvent]:
        async with aclosing(super().stream(*args, **kwargs)) as events:
            async for event in events:
                yield event

    @asynccontextmanager
    async def _get_client(self) -> AsyncIterator[Any]:
        # The base class makes a client for each call, as it does not close responses.
        async with AsyncExitStack() as stack:

            async def create(**request: Any) -> Any:
                response = await self._openai.chat.completions.create(**request)
                return self._limit(await stack.enter_async_context(response))

            # Without `beta`, which takes a third of a second to load, and no turn needs.
            yield SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))

    async def _limit(self, chunks: AsyncIterator[Any]) -> AsyncGenerator[Any]:
        # The base class keeps the arguments of tool calls until the end.
        size = 0
        async for chunk in chunks:
            for choice in chunk.choices or []:
                for call in choice.delta.tool_calls or []:
                    size += len(call.function.arguments or "")
            if size > self._max_bytes:
                raise AgentError("reply_incomplete", detail="MAX_REPLY_BYTES")
            yield chunk

    def format_chunk(self, event: dict[str, Any], **kwargs: Any) -> StreamEvent:
        # The base class accepts a stream that just stops, and an unknown finish reason.
        if event["chunk_type"] == "message_stop" and event["data"] == "end_turn":
            raise ConnectionError("the stream ended without a finish reason")
        if event["chunk_type"] == "message_stop" and event["data"] not in REASONS:
            return {"messageStop": {"stopReason": event["data"]}}
        chunk = super().format_chunk(event, **kwargs)
        if "metadata" in chunk:  # other models of Strands count cached tokens beside the input
            usage = chunk["metadata"]["usage"]
            cached = usage.get("cacheReadInputTokens", 0) + usage.get("cacheWriteInputTokens", 0)
            usage["inputTokens"] -= cached
        return chunk
