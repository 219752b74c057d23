"""Reads and checks the address and key of Anthropic."""

import os
import re

from ..findings import Finding, diagnostic
from ..settings import CoreSettings, is_plain_http


def vendor_findings(settings: CoreSettings) -> list[Finding]:
    """Return findings about missing or invalid settings of the vendor."""
    if not re.match("https?://", vendor_endpoint(settings), re.IGNORECASE):
        hint = "ANTHROPIC_BASE_URL must be an http address, for example https://api.anthropic.com."
        return [diagnostic("SET-ANTHROPIC_BASE_URL", hint)]
    if not os.environ.get("ANTHROPIC_API_KEY"):
        hint = "ANTHROPIC_API_KEY is not set: MODEL needs it."
        return [diagnostic("SET-ANTHROPIC_API_KEY", hint)]
    if is_plain_http(vendor_endpoint(settings)):
        hint = "ANTHROPIC_API_KEY travels over plain http to another host: use https."
        return [diagnostic("SET-ANTHROPIC_BASE_URL", hint, "warning")]
    return []


def vendor_endpoint(settings: CoreSettings) -> str:
    """Return the address of the provider."""
    return os.environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
