"""Which model answers: MODEL on Amazon Bedrock, or the offline model while MODEL is unset."""

import os
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import cache
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from strands.models import CacheConfig, Model
from strands.models.bedrock import BedrockModel

from .harness.echo_model import OfflineModel
from .harness.findings import diagnostic
from .harness.models.aws_call import CALL, Call
from .harness.settings import CoreSettings

# Settings to check when the provider refuses a call, and when it cannot be reached.
CREDENTIALS, ADDRESS = "the AWS credentials", "AWS_REGION"
GUARDRAIL = "|(arn:[a-z0-9:-]+:guardrail/)?[a-z0-9]+ (DRAFT|[1-9][0-9]{0,7})"


class Bedrock(BedrockModel):
    """Bedrock whose calls end with their turn; the base class continues to read in a thread."""

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        call = Call()
        CALL.set(call)  # the thread of this call gets a copy of the context
        async with aclosing(super().stream(*args, **kwargs)) as events:
            try:
                async for event in events:
                    yield event
            finally:
                call.end()


def build_model(settings: CoreSettings) -> Model:
    """Return the model of this process."""
    return OfflineModel() if settings.model == "offline" else _bedrock(settings)


def check_model(settings: CoreSettings) -> list[dict[str, Any]]:
    """Return findings about missing or invalid model settings."""
    if settings.model == "offline":
        return []
    try:
        if _region():
            _bedrock(settings)
            return []
    except (BotoCoreError, ValueError) as error:
        return [diagnostic("SET-AWS", f"MODEL cannot use Bedrock: {error}")]
    return [diagnostic("SET-AWS_REGION", "AWS_REGION is not set: MODEL needs it, as in us-east-1.")]


def model_endpoint(settings: CoreSettings) -> str:
    """Return the address of the provider."""
    return str(_bedrock(settings).client.meta.endpoint_url)


@cache
def _bedrock(settings: CoreSettings) -> BedrockModel:
    # At most two more tries, by the AWS client and before the first byte.
    config = Config(retries={"total_max_attempts": 3, "mode": "standard"}, read_timeout=120)
    id, version = (os.environ.get(f"GUARDRAIL_{name}", "") for name in ("ID", "VERSION"))
    if not re.fullmatch(GUARDRAIL, f"{id} {version}".strip()):
        raise ValueError("GUARDRAIL_ID must be an id or ARN, GUARDRAIL_VERSION a number or DRAFT")
    return Bedrock(
        model_id=settings.model,
        region_name=_region(),
        boto_client_config=config,
        cache_config=CacheConfig() if settings.prompt_cache else None,
        guardrail_id=id.strip(),
        guardrail_version=version.strip(),
    )


def _region() -> str | None:
    return os.environ.get("AWS_REGION") or boto3.Session().region_name
