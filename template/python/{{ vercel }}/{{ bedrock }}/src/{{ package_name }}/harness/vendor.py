"""The vendor-specific part of the owner's module `model`, for Amazon Bedrock."""

import os
import re
from functools import cache
from typing import Any

import ai

from .echo_model import OfflineModel
from .findings import Finding, diagnostic
from .models.provider import BedrockProvider
from .settings import CoreSettings

__all__ = ["OfflineModel", "vendor_endpoint", "vendor_findings", "vendor_model"]

GUARDRAIL = "|(arn:[a-z0-9:-]+:guardrail/)?[a-z0-9]+ (DRAFT|[1-9][0-9]{0,7})"


def vendor_model(settings: CoreSettings) -> ai.Model:
    """Return a client of the vendor as a model."""
    provider = BedrockProvider(_client(), _guardrail(), caches=settings.prompt_cache > 0)
    return ai.Model(id=settings.model, provider=provider)


def vendor_findings(settings: CoreSettings) -> list[Finding]:
    """Return findings about missing or invalid settings of the vendor."""
    from botocore.exceptions import BotoCoreError

    try:
        if _region():
            _client()
            _guardrail()
            return []
    except (BotoCoreError, ValueError) as error:
        return [diagnostic("SET-AWS", f"MODEL cannot use Bedrock: {error}")]
    return [
        diagnostic(
            "SET-AWS_REGION", "AWS_REGION is not set: MODEL needs it, for example us-east-1."
        )
    ]


def vendor_endpoint(settings: CoreSettings) -> str:
    """Return the address of the vendor."""
    return str(_client().meta.endpoint_url)


@cache
def _client() -> Any:
    import boto3  # takes half a second to import
    from botocore.config import Config

    # At most two retries, by the AWS client and before the first byte.
    config = Config(retries={"total_max_attempts": 3, "mode": "standard"}, read_timeout=120)
    return boto3.client("bedrock-runtime", region_name=_region(), config=config)


def _guardrail() -> dict[str, Any]:
    id, version = (os.environ.get(f"GUARDRAIL_{name}", "").strip() for name in ("ID", "VERSION"))
    if not re.fullmatch(GUARDRAIL, f"{id} {version}".strip()):
        raise ValueError("GUARDRAIL_ID must be an id or ARN, GUARDRAIL_VERSION a number or DRAFT")
    if not id:
        return {}
    config = {"guardrailIdentifier": id, "guardrailVersion": version, "trace": "enabled"}
    return {"guardrailConfig": config}


def _region() -> str:
    if region := os.environ.get("AWS_REGION"):
        return region
    import boto3

    return str(boto3.Session().region_name or "")
