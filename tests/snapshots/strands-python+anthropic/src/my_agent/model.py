"""Which model answers: MODEL at Anthropic, or the offline model while MODEL is unset."""

import os
import re
from typing import Any

from strands.models import Model

from .harness.echo_model import OfflineModel
from .harness.findings import diagnostic
from .harness.settings import CoreSettings, is_plain_http

MAX_TOKENS = 8192  # of one answer; Anthropic requires a limit

# Settings to check when the provider refuses a call, and when it cannot be reached.
CREDENTIALS, ADDRESS = "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"


def build_model(settings: CoreSettings) -> Model:
    """Return the model of this process."""
    if settings.model == "offline":
        return OfflineModel()
    from .harness.models.claude_model import ClaudeModel  # imports anthropic, which takes a second

    return ClaudeModel(settings, MAX_TOKENS)


def check_model(settings: CoreSettings) -> list[dict[str, Any]]:
    """Return findings about missing or invalid model settings."""
    if settings.model == "offline":
        return []
    if not re.match("https?://", model_endpoint(settings), re.IGNORECASE):
        hint = "ANTHROPIC_BASE_URL must be an http address, as in https://api.anthropic.com."
        return [diagnostic("SET-ANTHROPIC_BASE_URL", hint)]
    if not os.environ.get("ANTHROPIC_API_KEY"):
        hint = "ANTHROPIC_API_KEY is not set: MODEL needs it."
        return [diagnostic("SET-ANTHROPIC_API_KEY", hint)]
    if is_plain_http(model_endpoint(settings)):
        hint = "ANTHROPIC_API_KEY travels over plain http to another host: use https."
        return [diagnostic("SET-ANTHROPIC_BASE_URL", hint, "warning")]
    return []


def model_endpoint(settings: CoreSettings) -> str:
    """Return the address of the provider."""
    return os.environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
