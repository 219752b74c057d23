"""Secrets by reference: from the environment or AWS Secrets Manager, kept for a while."""

import asyncio
import json
import os
import re
from typing import Any

from cachetools import TTLCache

from ..contract import describe
from .access import RestApi
from .backends import Unavailable
from .causes import MISSING, cause_of, told
from .models import S3, AgentCoreMemory, Collection, Custom, Valkey
from .options import Options


class SecretError(Unavailable):
    """A secret cannot be had; the text names the reference and the variable, never a value."""

    def __init__(self, reference: str, why: str) -> None:
        name = variable_of(reference)
        hint = f"; locally, set {name}" if name else ""
        super().__init__(f"secret {reference!r}: {why}{hint}", is_certain=True)


class Secrets:
    """What references stand for; each is looked up again when its time is over.

    A reference is `env:NAME`, an ARN, or a path: of the variable UPPER_SNAKE if that is set,
    else of AWS Secrets Manager. `#key` behind it takes a field of a secret that is JSON.
    """

    def __init__(self, options: Options) -> None:
        self._timeout = options.store_timeout_seconds
        self._known: TTLCache[tuple[str, str | None, str | None], str]
        self._known = TTLCache(1000, options.secret_cache_seconds)

    async def get(self, reference: str, key: str | None = None, region: str | None = None) -> str:
        """The secret, or its field `key`. Raises SecretError."""
        what = (reference, key, region)
        value = self._known.get(what)
        if value is None:
            value = self._known[what] = await asyncio.to_thread(self.read, *what)
        return value

    def read(self, reference: str, key: str | None = None, region: str | None = None) -> str:
        """As `get`; blocks, and looks it up in any case."""
        name, _, field = reference.partition("#")
        field = key or field
        value = os.environ.get(variable_of(reference), "").strip()
        if not value and reference.startswith("env:"):
            raise SecretError(reference, "it is not set")
        value = value or self._ask_aws(reference, name, region)
        try:
            value = json.loads(value)[field] if field else value
        except (ValueError, TypeError, KeyError):
            value = ""
        if not isinstance(value, str) or not value:
            raise SecretError(reference, f"it has no text {field!r}" if field else "it is empty")
        return value

    def _ask_aws(self, reference: str, name: str, region: str | None) -> str:
        from boto3.session import Session  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

        if re.match("arn:.*?:.*?:.+?:", name):
            region = name.split(":")[3]
        region = region or os.environ.get("AWS_REGION")  # boto3 reads AWS_DEFAULT_REGION only
        retries: Any = {"total_max_attempts": 2, "mode": "standard"}
        limits: Any = {"connect_timeout": self._timeout, "read_timeout": self._timeout}
        try:
            config = Config(retries=retries, **limits)
            client = Session().client("secretsmanager", region_name=region, config=config)
            return str(client.get_secret_value(SecretId=name).get("SecretString", "")).strip()
        except ClientError as error:
            code = error.response["Error"]["Code"]
            why = cause_of(None, code, error.response["ResponseMetadata"]["HTTPStatusCode"]) or code
        except (BotoCoreError, OSError, ValueError) as error:
            why = cause_of(error) or describe(error)
        raise SecretError(reference, why if why == MISSING else told("AWS Secrets Manager", why))


def variable_of(reference: str) -> str:
    """The environment variable that stands for a reference; an ARN has none."""
    path = reference.partition("#")[0]
    if path.startswith("env:"):
        return path.removeprefix("env:")
    return "" if path.startswith("arn:") else re.sub("[^A-Za-z0-9]+", "_", path).upper()


def references_of(collection: Collection) -> list[tuple[str, str | None, str | None]]:
    """What a collection has looked up: references, each with a field of it and a region."""
    backend = collection.backend
    if isinstance(backend, AgentCoreMemory):
        return [(backend.memory_id_secret or "", None, None)]
    if isinstance(backend, Valkey):
        return [(backend.endpoint_secret or "", None, None)]
    if isinstance(backend, S3):
        return [(backend.bucket_secret or "", None, None)]
    if not isinstance(backend, Custom) or backend.transport is None:
        return []
    way, how = backend.transport, backend.transport.credentials
    address = way.base_url if isinstance(way, RestApi) else way.function_arn or way.function_id
    name = f"env:{how.name}" if how.source == "env" else how.secret_id
    found = [(address, None, None)] if address and address.startswith("env:") else []
    return [*found, (name, how.key, how.region)] if how.source and name else [*found]
