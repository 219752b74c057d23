"""The vendor-specific part of the owner's module `model`, for Anthropic."""

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import ai
from ai.providers.anthropic import AnthropicMessagesProtocol

from .echo_model import OfflineModel
from .messages import mark, shown_to
from .models.address import vendor_endpoint, vendor_findings
from .models.messages_stream import MessagesStream, with_redacted_thinking
from .models.provider import event_hooks
from .settings import CoreSettings

__all__ = ["OfflineModel", "vendor_endpoint", "vendor_findings", "vendor_model"]


class MessagesProtocol(AnthropicMessagesProtocol):
    """The Messages API, with cache points after the system prompt and the user's prompt."""

    caches: bool = True

    async def stream(
        self, client: Any, model: Any, messages: list[ai.messages.Message], **kwargs: Any
    ) -> AsyncGenerator[ai.events.Event]:
        prompt = messages[-1].parts[0]
        shown = shown_to(model, messages)

        def stream(**request: Any) -> MessagesStream:
            with_redacted_thinking(request["messages"])
            if self.caches:
                _add_cache_points(request, prompt)
            return MessagesStream(client, request)

        reader: Any = SimpleNamespace(messages=SimpleNamespace(stream=stream))
        async for event in super().stream(reader, model, shown, **kwargs):
            if isinstance(event, ai.events.StreamEnd) and event.usage:
                # The base class does not count tokens written to the cache.
                total = event.usage.input_tokens + (event.usage.cache_write_tokens or 0)
                usage = event.usage.model_copy(update={"input_tokens": total})
                event = event.model_copy(update={"usage": usage})
            yield mark(event, model)


def _add_cache_points(request: dict[str, Any], prompt: ai.messages.Part) -> None:
    point: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
    if system := request.get("system"):
        request["system"] = [{"type": "text", "text": system, **point}]
    last = request["messages"][-1]
    if isinstance(last["content"], str) and prompt.kind == "text":
        # Content after the prompt, such as memories, changes with each turn.
        rest = last["content"].removeprefix(prompt.text)
        others = [{"type": "text", "text": rest}] if rest else []
        last["content"] = [{"type": "text", "text": prompt.text, **point}, *others]
    else:
        last["content"][-1].update(point)


def vendor_model(settings: CoreSettings) -> ai.Model:
    """Return a client of the vendor as a model."""
    from anthropic import DefaultAsyncHttpxClient  # takes a second to import

    client = DefaultAsyncHttpxClient(event_hooks=event_hooks(settings))
    protocol = MessagesProtocol(caches=settings.prompt_cache > 0)
    provider = ai.get_provider("anthropic", client=client, protocol=protocol)
    return ai.Model(id=settings.model, provider=provider)
