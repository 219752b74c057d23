"""The vendor-specific part of the owner's module `model`, for Anthropic."""

from typing import Any

from strands.models import Model

from .echo_model import OfflineModel
from .models.address import vendor_endpoint, vendor_findings
from .settings import CoreSettings

__all__ = ["OfflineModel", "vendor_endpoint", "vendor_findings", "vendor_model"]


def vendor_model(settings: CoreSettings, **options: Any) -> Model:
    """Return a client of the vendor as a model, with options of `AnthropicModel`."""
    from .models.claude_model import ClaudeModel  # imports anthropic, which takes a second

    return ClaudeModel(settings, **options)
