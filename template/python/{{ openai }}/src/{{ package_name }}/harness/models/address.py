"""Reads and checks the address and key of a Chat Completions server."""

import os
import re

from ..findings import Finding, diagnostic
from ..settings import CoreSettings, is_plain_http


def vendor_findings(settings: CoreSettings) -> list[Finding]:
    """Return findings about missing or invalid settings of the vendor."""
    key = os.environ.get("OPENAI_API_KEY")
    if not re.match("https?://", vendor_endpoint(settings), re.IGNORECASE):
        hint = "OPENAI_BASE_URL must be an http address, for example http://localhost:11434/v1."
        return [diagnostic("SET-OPENAI_BASE_URL", hint)]
    if key and is_plain_http(vendor_endpoint(settings)):
        hint = "OPENAI_API_KEY travels over plain http to another host: use https."
        return [diagnostic("SET-OPENAI_BASE_URL", hint, "warning")]
    if key or os.environ.get("OPENAI_BASE_URL"):
        return []
    hint = "MODEL requires OPENAI_API_KEY, or OPENAI_BASE_URL for your own server."
    return [diagnostic("SET-OPENAI_API_KEY", hint)]


def vendor_endpoint(settings: CoreSettings) -> str:
    """Return the address of the provider."""
    return os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
