"""Which model answers: MODEL over Vercel's gateway, or the offline model while MODEL is unset."""

from collections.abc import AsyncGenerator
from typing import Any

import ai
from ai.providers.ai_gateway.protocol import GatewayV4Protocol

from .findings import diagnostic
from .offline_model import OfflineModel
from .settings import CoreSettings

# Settings to check when the provider refuses a call, and when it cannot be reached.
CREDENTIALS, ADDRESS = "AI_GATEWAY_API_KEY", "any proxy"


class CachingProtocol(GatewayV4Protocol):
    """The gateway's protocol, with cache points where a vendor needs them."""

    def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[ai.events.Event]:
        kwargs["params"] = ai.InferenceRequestParams(cache=ai.CacheParams(mode="auto"))
        return super().stream(*args, **kwargs)


def build_model(settings: CoreSettings) -> ai.Model:
    """Return the model of this process."""
    if settings.model == "offline":
        return OfflineModel()
    caching = CachingProtocol() if settings.prompt_cache else None
    return ai.Model(id=settings.model, provider=ai.get_provider("gateway", protocol=caching))


def check_model(settings: CoreSettings, connect: bool = False) -> list[dict[str, Any]]:
    """Return findings about missing or invalid model settings."""
    if settings.model == "offline" or ai.get_provider("gateway").is_configured():
        return []
    return [diagnostic("SET-AI_GATEWAY_API_KEY", "AI_GATEWAY_API_KEY is not set: MODEL needs it.")]


def model_endpoint(settings: CoreSettings) -> str:
    """Return the address of the provider."""
    return ai.get_provider("gateway").base_url
