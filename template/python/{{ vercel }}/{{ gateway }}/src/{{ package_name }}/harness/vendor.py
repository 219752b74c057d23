"""The vendor-specific part of the owner's module `model`, for Vercel's gateway."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import ai
from ai.providers.ai_gateway.protocol import GatewayV4Protocol

from .echo_model import OfflineModel
from .findings import Finding, diagnostic
from .messages import mark, shown_to
from .models.context_length import is_too_long
from .models.gateway_calls import GatewayCalls
from .settings import CoreSettings

__all__ = ["OfflineModel", "vendor_endpoint", "vendor_findings", "vendor_model"]

WAITS = (0.5, 1.0)  # seconds before a retry, like other clients; the AI SDK does not retry


class GatewayProtocol(GatewayV4Protocol):
    """The gateway's protocol, with cache points where a vendor needs them."""

    caches: bool = True

    async def stream(
        self, client: Any, model: ai.Model, messages: list[ai.messages.Message], **kwargs: Any
    ) -> AsyncGenerator[ai.events.Event]:
        for wait in (*WAITS, None):
            has_answered = False
            try:
                async with aclosing(self._try(client, model, messages, **kwargs)) as events:
                    async for event in events:
                        has_answered = True
                        yield event
                return
            except ai.errors.ProviderAPIError as error:
                is_final = wait is None or not error.is_retryable or is_too_long(error)
                if has_answered or is_final:
                    raise
            await asyncio.sleep(wait or 0)

    async def _try(
        self, client: Any, model: ai.Model, messages: list[ai.messages.Message], **kwargs: Any
    ) -> AsyncGenerator[ai.events.Event]:
        if self.caches:
            kwargs["params"] = ai.InferenceRequestParams(cache=ai.CacheParams(mode="auto"))
        shown = shown_to(model, messages)
        calls: Any = GatewayCalls(client, shown)
        async for event in super().stream(calls, model, shown, **kwargs):
            if isinstance(event, ai.events.StreamEnd):
                for end in calls.signed_ends():
                    yield end
            yield mark(event, model)


def vendor_model(settings: CoreSettings) -> ai.Model:
    """Return a client of the vendor as a model."""
    protocol = GatewayProtocol(caches=settings.prompt_cache > 0)
    return ai.Model(id=settings.model, provider=ai.get_provider("gateway", protocol=protocol))


def vendor_findings(settings: CoreSettings) -> list[Finding]:
    """Return findings about missing or invalid settings of the vendor."""
    if ai.get_provider("gateway").is_configured():
        return []
    return [diagnostic("SET-AI_GATEWAY_API_KEY", "AI_GATEWAY_API_KEY is not set: MODEL needs it.")]


def vendor_endpoint(settings: CoreSettings) -> str:
    """Return the address of the vendor."""
    return ai.get_provider("gateway").base_url
