"""Chat Completions as the vendor of models; the owner's module `model` imports from here."""

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import ai
from ai.providers.openai import OpenAIChatCompletionsProtocol

from .echo_model import OfflineModel
from .messages import mark, shown_to
from .models.address import vendor_endpoint, vendor_findings
from .models.chat_extras import Extras, give_back, images_after_results
from .models.chat_stream import event_hooks, untouched
from .settings import CoreSettings

__all__ = ["OfflineModel", "vendor_endpoint", "vendor_findings", "vendor_model"]


class ChatProtocol(OpenAIChatCompletionsProtocol):
    """OpenAI's Chat Completions, as OpenAI, Ollama, vLLM and others serve them."""

    async def stream(
        self, client: Any, model: ai.Model, messages: list[ai.messages.Message], **kwargs: Any
    ) -> AsyncGenerator[ai.events.Event]:
        messages, extras = shown_to(model, messages), Extras()
        # The base class does not close a stream that is not read to its end.
        async with AsyncExitStack() as stack:

            async def create(**request: Any) -> Any:
                give_back(messages, request["messages"])
                request["messages"] = images_after_results(request["messages"])
                response = await client.chat.completions.create(**untouched(request))
                return extras.taken_from(await stack.enter_async_context(response))

            closing: Any = SimpleNamespace(
                chat=SimpleNamespace(completions=SimpleNamespace(create=create))
            )
            async for event in super().stream(closing, model, messages, **kwargs):
                # Without its start, a part of reasoning is in no message.
                if isinstance(event, ai.events.ReasoningStart | ai.events.ReasoningEnd):
                    continue
                yield mark(extras.added_to(event), model)


def vendor_model(settings: CoreSettings) -> ai.Model:
    """Return a client of the vendor as a model."""
    from openai import DefaultAsyncHttpxClient  # takes a second

    # The client would load it in the first turn, and hold up all others.
    import_module("openai.resources.chat.chat")
    # A server of your own may want no key, but the client requires a key.
    key = os.environ.get("OPENAI_API_KEY") or "none"
    client = DefaultAsyncHttpxClient(event_hooks=event_hooks(settings))
    provider = ai.get_provider("openai", api_key=key, client=client, protocol=ChatProtocol())
    return ai.Model(id=settings.model, provider=provider)
