"""Which model answers: MODEL on Amazon Bedrock, or the offline model while MODEL is unset."""

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from contextvars import ContextVar
from typing import Any

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from strands.models import Model
from strands.models.bedrock import BedrockModel

from .offline_model import OfflineModel
from .settings import Settings, diagnostic

BODIES: ContextVar[list[Any] | None] = ContextVar("BODIES", default=None)


class Bedrock(BedrockModel):
    """Bedrock whose calls end with their turn; the base class would read them to their end."""

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        bodies: list[Any] = []
        BODIES.set(bodies)  # for the thread of this call, which gets a copy of the context
        async with aclosing(super().stream(*args, **kwargs)) as events:
            try:
                async for event in events:
                    yield event
            finally:
                bodies.append(None)  # says that the call is over
                _end(bodies)


def _keep(response_dict: dict[str, Any], **_: Any) -> None:
    bodies = BODIES.get()
    if bodies is not None:
        bodies.append(response_dict["body"])  # of urllib3, whose `shutdown` any thread may call
        _end(bodies)


def _end(bodies: list[Any]) -> None:
    """Stop reading what is still open, once the call is over."""
    for body in bodies if None in bodies else []:
        with suppress(AttributeError, OSError, RuntimeError, ValueError):  # it has ended by itself
            body.shutdown()


def build_model(settings: Settings) -> Model:
    """The model of this process."""
    return OfflineModel() if settings.model == "offline" else _bedrock(settings)


def check_model(settings: Settings) -> list[dict[str, Any]]:
    """What keeps the model from answering, as far as the environment tells."""
    if settings.model == "offline" or _region():
        return []
    return [diagnostic("SET-AWS_REGION", "AWS_REGION is not set: MODEL needs it, as in us-east-1.")]


def model_endpoint(settings: Settings) -> str:
    """Where the model is reached."""
    return str(_bedrock(settings).client.meta.endpoint_url)


def _bedrock(settings: Settings) -> BedrockModel:
    # At most two more tries, by the AWS client and before the first byte.
    config = Config(retries={"total_max_attempts": 3, "mode": "standard"}, read_timeout=120)
    model = Bedrock(model_id=settings.model, region_name=_region(), boto_client_config=config)
    model.client.meta.events.register("before-parse.bedrock-runtime.ConverseStream", _keep)
    return model


def _region() -> str | None:
    return os.environ.get("AWS_REGION") or boto3.Session().region_name
