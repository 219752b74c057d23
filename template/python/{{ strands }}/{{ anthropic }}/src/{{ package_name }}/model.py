"""Which model answers: MODEL at Anthropic, or the offline model while MODEL is unset."""

from typing import Any

from strands.models import Model

from .harness import CoreSettings, Finding
from .harness.vendor import OfflineModel, vendor_endpoint, vendor_findings, vendor_model

# Settings to check when the provider refuses a call, and when it cannot be reached.
CREDENTIALS = "ANTHROPIC_API_KEY"
ADDRESS = "ANTHROPIC_BASE_URL"

# Options of `AnthropicModel` in Strands. Anthropic requires `max_tokens`, the limit of an answer.
OPTIONS: dict[str, Any] = {"max_tokens": 8192}


def build_model(settings: CoreSettings) -> Model:
    """Return the model of this process."""
    if settings.model == "offline":
        return OfflineModel()
    return vendor_model(settings, **OPTIONS)


def check_model(settings: CoreSettings) -> list[Finding]:
    """Return findings about missing or invalid model settings."""
    if settings.model == "offline":
        return []
    return vendor_findings(settings)


def model_endpoint(settings: CoreSettings) -> str:
    """Return the address of the provider."""
    return vendor_endpoint(settings)
