"""Which model answers: MODEL over Chat Completions, or the offline model while MODEL is unset."""

import os
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import ai
from ai.providers.openai import OpenAIChatCompletionsProtocol

from .harness.echo_model import OfflineModel
from .harness.findings import diagnostic
from .harness.messages import mark, shown_to
from .harness.models.chat_extras import Extras, give_back, images_after_results
from .harness.models.chat_stream import event_hooks, untouched
from .harness.settings import CoreSettings, is_plain_http

# Settings to check when the provider refuses a call, and when it cannot be reached.
CREDENTIALS, ADDRESS = "OPENAI_API_KEY", "OPENAI_BASE_URL"


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


def build_model(settings: CoreSettings) -> ai.Model:
    """Return the model of this process."""
    if settings.model == "offline":
        return OfflineModel()
    from openai import DefaultAsyncHttpxClient  # takes a second

    # The client would load it in the first turn, and hold up all others.
    import_module("openai.resources.chat.chat")
    # A server of your own may want no key, but the client requires a key.
    key = os.environ.get("OPENAI_API_KEY") or "none"
    client = DefaultAsyncHttpxClient(event_hooks=event_hooks(settings))
    provider = ai.get_provider("openai", api_key=key, client=client, protocol=ChatProtocol())
    return ai.Model(id=settings.model, provider=provider)


def check_model(settings: CoreSettings) -> list[dict[str, Any]]:
    """Return findings about missing or invalid model settings."""
    key = os.environ.get("OPENAI_API_KEY")
    if settings.model == "offline":
        return []
    if not re.match("https?://", model_endpoint(settings), re.IGNORECASE):
        hint = "OPENAI_BASE_URL must be an http address, as in http://localhost:11434/v1."
        return [diagnostic("SET-OPENAI_BASE_URL", hint)]
    if key and is_plain_http(model_endpoint(settings)):
        hint = "OPENAI_API_KEY travels over plain http to another host: use https."
        return [diagnostic("SET-OPENAI_BASE_URL", hint, "warning")]
    if key or os.environ.get("OPENAI_BASE_URL"):
        return []
    hint = "Set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own: MODEL needs it."
    return [diagnostic("SET-OPENAI_API_KEY", hint)]


def model_endpoint(settings: CoreSettings) -> str:
    """Return the address of the provider."""
    return os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
