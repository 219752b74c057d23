"""The vendor-specific part of the owner's module `model`, for Chat Completions."""

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
from .models.chat_extras import Extras, images_after_results, restore_extras
from .models.chat_stream import event_hooks, with_raw_messages
from .settings import CoreSettings

__all__ = ["OfflineModel", "vendor_endpoint", "vendor_findings", "vendor_model"]


class ChatProtocol(OpenAIChatCompletionsProtocol):
    """The Chat Completions API of OpenAI, Ollama, vLLM and others."""

    async def stream(
        self, client: Any, model: ai.Model, messages: list[ai.messages.Message], **kwargs: Any
    ) -> AsyncGenerator[ai.events.Event]:
        messages = shown_to(model, messages)
        extras = Extras()
        # The base class does not close an unfinished stream.
        async with AsyncExitStack() as stack:

            async def create(**request: Any) -> Any:
                restore_extras(messages, request["messages"])
                request["messages"] = images_after_results(request["messages"])
                response = await client.chat.completions.create(**with_raw_messages(request))
                return extras.extract_from(await stack.enter_async_context(response))

            closing: Any = SimpleNamespace(
                chat=SimpleNamespace(completions=SimpleNamespace(create=create))
            )
            async for event in super().stream(closing, model, messages, **kwargs):
                # Without its start and end, reasoning does not become part of a message.
                if isinstance(event, ai.events.ReasoningStart | ai.events.ReasoningEnd):
                    continue
                yield mark(extras.attach_to(event), model)


def vendor_model(settings: CoreSettings) -> ai.Model:
    """Return a client of the vendor as a model."""
    from openai import DefaultAsyncHttpxClient  # takes a second to import

    # Otherwise the client would import it in the first turn and block all other turns.
    import_module("openai.resources.chat.chat")
    # Your own server may need no key, but the client requires a key.
    key = os.environ.get("OPENAI_API_KEY") or "none"
    client = DefaultAsyncHttpxClient(event_hooks=event_hooks(settings))
    provider = ai.get_provider("openai", api_key=key, client=client, protocol=ChatProtocol())
    return ai.Model(id=settings.model, provider=provider)
