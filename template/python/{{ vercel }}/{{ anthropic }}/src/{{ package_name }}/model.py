"""Which model answers: MODEL at Anthropic, or the offline model while MODEL is unset."""

import ai

from .harness import CoreSettings, Finding
from .harness.vendor import OfflineModel, vendor_endpoint, vendor_findings, vendor_model

# Settings to check when the provider refuses a call, and when it cannot be reached.
CREDENTIALS = "ANTHROPIC_API_KEY"
ADDRESS = "ANTHROPIC_BASE_URL"


def build_model(settings: CoreSettings) -> ai.Model:
    """Return the model of this process."""
    if settings.model == "offline":
        return OfflineModel()
    return vendor_model(settings)


def check_model(settings: CoreSettings) -> list[Finding]:
    """Return findings about missing or invalid model settings."""
    if settings.model == "offline":
        return []
    return vendor_findings(settings)


def model_endpoint(settings: CoreSettings) -> str:
    """Return the address of the provider."""
    return vendor_endpoint(settings)
