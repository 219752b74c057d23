"""Which model answers: MODEL over Chat Completions, or the offline model while MODEL is unset."""

import os
from typing import Any

import ai
from ai.providers.openai import OpenAIChatCompletionsProtocol

from .offline_model import OfflineModel
from .settings import Settings, diagnostic


def build_model(settings: Settings) -> ai.Model:
    """The model of this process."""
    if settings.model == "offline":
        return OfflineModel()
    # A server of your own may want no key, but the client insists on one. Chat Completions is
    # what all of them speak, and what needs no state that OpenAI keeps.
    key, protocol = os.environ.get("OPENAI_API_KEY") or "none", OpenAIChatCompletionsProtocol()
    provider = ai.get_provider("openai", api_key=key, protocol=protocol)
    return ai.Model(id=settings.model, provider=provider)


def check_model(settings: Settings) -> list[dict[str, Any]]:
    """What keeps this model from answering, as far as the environment can tell."""
    known = os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")
    if settings.model == "offline" or known:
        return []
    hint = "Set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own: MODEL needs it."
    return [diagnostic("SET-OPENAI_API_KEY", hint)]


def model_endpoint(settings: Settings) -> str:
    """Where the model is reached."""
    return os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
