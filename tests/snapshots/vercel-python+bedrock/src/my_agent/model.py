"""Which model answers: MODEL on Amazon Bedrock, or the offline model while MODEL is unset."""

import os
import re
from functools import cache
from typing import Any

import ai

from .harness.echo_model import OfflineModel
from .harness.findings import diagnostic
from .harness.models.provider import BedrockProvider
from .harness.settings import CoreSettings

# Settings to check when the provider refuses a call, and when it cannot be reached.
CREDENTIALS, ADDRESS = "the AWS credentials", "AWS_REGION"
GUARDRAIL = "|(arn:[a-z0-9:-]+:guardrail/)?[a-z0-9]+ (DRAFT|[1-9][0-9]{0,7})"


def build_model(settings: CoreSettings) -> ai.Model:
    """Return the model of this process."""
    if settings.model == "offline":
        return OfflineModel()
    provider = BedrockProvider(_client(), _guardrail(), caches=settings.prompt_cache > 0)
    return ai.Model(id=settings.model, provider=provider)


def check_model(settings: CoreSettings) -> list[dict[str, Any]]:
    """Return findings about missing or invalid model settings."""
    if settings.model == "offline":
        return []
    from botocore.exceptions import BotoCoreError

    try:
        if _region():
            _client()
            _guardrail()
            return []
    except (BotoCoreError, ValueError) as error:
        return [diagnostic("SET-AWS", f"MODEL cannot use Bedrock: {error}")]
    return [diagnostic("SET-AWS_REGION", "AWS_REGION is not set: MODEL needs it, as in us-east-1.")]


def model_endpoint(settings: CoreSettings) -> str:
    """Return the address of the provider."""
    return str(_client().meta.endpoint_url)


@cache
def _client() -> Any:
    import boto3  # takes half a second
    from botocore.config import Config

    # At most two more tries, by the AWS client and before the first byte.
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
