"""OpenAI's client as a model of Strands."""

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from httpx import create_ssl_context
from openai import DefaultAsyncHttpxClient
from strands.models.openai import OpenAIModel
from strands.types.streaming import StreamEvent

from .provider import event_hooks
from .settings import Settings

REASONS = {"stop", "tool_calls", "length", "content_filter"}


class ChatModel(OpenAIModel):
    """OpenAI's Chat Completions, as OpenAI, Ollama, vLLM and others serve them."""

    def __init__(self, settings: Settings) -> None:
        # A server of your own may want no key, but the client insists on one.
        key = os.environ.get("OPENAI_API_KEY") or "none"
        super().__init__(client_args={"api_key": key}, model_id=settings.model)
        hooks = event_hooks(settings)
        self._http: dict[str, Any] = {"verify": create_ssl_context(), "event_hooks": hooks}

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[StreamEvent]:
        # The base class closes its client after each call: what is costly is made once.
        self.client_args["http_client"] = DefaultAsyncHttpxClient(**self._http)
        async with aclosing(super().stream(*args, **kwargs)) as events:
            async for event in events:
                yield event

    def format_chunk(self, event: dict[str, Any], **kwargs: Any) -> StreamEvent:
        # The base class takes for a good end: a stream that just stops, and an unknown reason.
        if event["chunk_type"] == "message_stop" and event["data"] == "end_turn":
            raise ConnectionError("the stream ended without a finish reason")
        if event["chunk_type"] == "message_stop" and event["data"] not in REASONS:
            return {"messageStop": {"stopReason": event["data"]}}
        return super().format_chunk(event, **kwargs)
