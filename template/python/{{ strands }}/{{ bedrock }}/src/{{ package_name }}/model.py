"""Which model answers: MODEL on Amazon Bedrock, or the offline model while MODEL is unset."""

from typing import Any

from strands.models import Model

from .harness import CoreSettings, Finding
from .harness.vendor import OfflineModel, vendor_endpoint, vendor_findings, vendor_model

# Settings to check when the provider refuses a call, and when it cannot be reached.
CREDENTIALS = "the AWS credentials"
ADDRESS = "AWS_REGION"

# Further options of `BedrockModel` in Strands, such as {"temperature": 0.2}.
OPTIONS: dict[str, Any] = {}


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
