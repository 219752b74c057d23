"""Which model answers: MODEL over Chat Completions, or the offline model while MODEL is unset."""

import os
import re
from typing import Any

from strands.models import Model

from .harness.echo_model import OfflineModel
from .harness.findings import diagnostic
from .harness.settings import CoreSettings, is_plain_http

# Settings to check when the provider refuses a call, and when it cannot be reached.
CREDENTIALS, ADDRESS = "OPENAI_API_KEY", "OPENAI_BASE_URL"


def build_model(settings: CoreSettings) -> Model:
    """Return the model of this process."""
    if settings.model == "offline":
        return OfflineModel()
    from .harness.models.chat_model import ChatModel  # imports openai, which takes a second

    return ChatModel(settings)


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
