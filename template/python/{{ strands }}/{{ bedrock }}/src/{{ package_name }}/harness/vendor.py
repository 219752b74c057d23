"""The vendor-specific part of the owner's module `model`, for Amazon Bedrock."""

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

from .echo_model import OfflineModel
from .findings import Finding, diagnostic
from .models.aws_call import CALL, Call
from .settings import CoreSettings

__all__ = ["OfflineModel", "vendor_endpoint", "vendor_findings", "vendor_model"]

GUARDRAIL = "|(arn:[a-z0-9:-]+:guardrail/)?[a-z0-9]+ (DRAFT|[1-9][0-9]{0,7})"


class Bedrock(BedrockModel):
    """Ends calls with their turn; the base class would continue to read in a thread."""

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        call = Call()
        CALL.set(call)  # the thread of the call copies this context
        async with aclosing(super().stream(*args, **kwargs)) as events:
            try:
                async for event in events:
                    yield event
            finally:
                call.end()


def vendor_model(settings: CoreSettings, **options: Any) -> Model:
    """Return a client of the vendor as a model, with further options of `BedrockModel`."""
    model = _bedrock(settings)
    model.update_config(**options)
    return model


def vendor_findings(settings: CoreSettings) -> list[Finding]:
    """Return findings about missing or invalid settings of the vendor."""
    try:
        if _region():
            _bedrock(settings)
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
    return str(_bedrock(settings).client.meta.endpoint_url)


@cache
def _bedrock(settings: CoreSettings) -> BedrockModel:
    # At most two retries, by the AWS client and before the first byte.
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
