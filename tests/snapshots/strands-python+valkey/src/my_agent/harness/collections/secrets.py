"""Secrets by reference, read from the environment or AWS Secrets Manager, and cached.

A reference is `env:NAME`, an ARN or a path. A path is the variable of that name in upper case
(`secrets/valkey/sessions` is SECRETS_VALKEY_SESSIONS) where it is set, and a secret of AWS
Secrets Manager otherwise. `#key` selects a field of a secret that is a JSON object.
"""

import asyncio
import json
import logging
import os
import re
from pathlib import Path
from time import monotonic

import anyio
import anyio.to_thread

from ..log import describe
from ..settings import CoreSettings
from .fields import SecretRef
from .models import Collection
from .settings import DeclarationSettings

log = logging.getLogger(__name__)
AWS_TIMEOUT_SECONDS = 3
AWS_ATTEMPTS = 2
AWS_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
)
AWS_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "credentials", "AWS_CONFIG_FILE": "config"}


class SecretError(Exception):
    """A secret that cannot be read; the text names its reference and variable, never a value."""

    def __init__(self, reference: str, reason: str) -> None:
        variable = variable_of(reference)
        shown = f" (variable {variable})" if variable else ""
        super().__init__(f"cannot read the secret {reference!r}{shown}: {reason}")


def variable_of(reference: str) -> str:
    """Return the environment variable that holds a reference's secret; "" for an ARN."""
    path = reference.partition("#")[0]
    if path.startswith("env:"):
        return path.removeprefix("env:")
    return "" if path.startswith("arn:") else re.sub("[^A-Za-z0-9]+", "_", path).upper()


def is_set(variable: str) -> bool:
    """Whether an environment variable has a value that is not blank."""
    return os.environ.get(variable, "").strip() != ""


def unset_variables(settings: CoreSettings, collection: Collection) -> list[str]:
    """Return the variables to set before the offline model uses a collection.

    Without them its sessions stay in the process. A real model always uses the collection.
    """
    names = [variable_of(ref.reference) for ref in collection.backend.secret_refs()]
    is_offline = settings.model == "offline"
    return [name for name in names if is_offline and name and not is_set(name)]


def has_aws_credentials() -> bool:
    """Whether the environment or a file of this user provides AWS credentials."""
    home = Path("~/.aws").expanduser()
    files = [Path(os.environ.get(name) or home / file) for name, file in AWS_FILES.items()]
    return any(map(os.environ.get, AWS_VARIABLES)) or any(file.is_file() for file in files)


class Secrets:
    """Reads secrets, each once for all callers, and again after `secret_cache_seconds`.

    The last value stays in use while a secret is read again, and when that fails: an outage of AWS
    Secrets Manager must not stop an agent whose secrets have not changed.
    """

    def __init__(self, settings: DeclarationSettings) -> None:
        self._seconds, self._prefix = settings.secret_cache_seconds, settings.secrets_prefix
        self._values: dict[SecretRef, tuple[str, float]] = {}  # and when each expires
        self._reads: dict[SecretRef, asyncio.Task[str]] = {}

    async def get(self, ref: SecretRef, was_refused: bool = False) -> str:
        """Return a secret, in bounded time. Raises SecretError.

        If its value `was_refused`, it may have been rotated, and is read again first.
        """
        value, expiry = self._values.get(ref, ("", 0.0))
        if monotonic() < expiry and not was_refused:
            return value
        if ref not in self._reads:
            self._reads[ref] = asyncio.create_task(self._refresh(ref, value))
            self._reads[ref].add_done_callback(lambda _: self._reads.pop(ref))
        can_wait = value and self._seconds and not was_refused
        return value if can_wait else await asyncio.shield(self._reads[ref])

    async def _refresh(self, ref: SecretRef, value: str) -> str:
        try:
            value = await self._read(ref)
        except SecretError as error:
            if not value:
                raise
            log.warning("%s; its last value stays in use", error)
        self._values[ref] = value, monotonic() + self._seconds
        return value

    async def _read(self, ref: SecretRef) -> str:
        if is_set(variable_of(ref.reference)):
            return read_variable(ref)
        if ref.reference.startswith("env:"):
            raise SecretError(ref.reference, "the variable is not set")
        return _value_in(await self._ask_aws(ref), ref)

    async def _ask_aws(self, ref: SecretRef) -> str:
        name = ref.reference.partition("#")[0]
        name = name if name.startswith("arn:") else self._prefix + name
        try:
            with anyio.fail_after(AWS_TIMEOUT_SECONDS * AWS_ATTEMPTS):
                ask = _ask_secrets_manager
                return await anyio.to_thread.run_sync(ask, name, ref.region, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 (boto3's errors have no common class)
            reason = f"AWS Secrets Manager failed with {describe(error)}"
            raise SecretError(ref.reference, reason) from None


def read_variable(ref: SecretRef) -> str:
    """Return the secret that the variable of a reference holds. Raises SecretError."""
    return _value_in(os.environ[variable_of(ref.reference)].strip(), ref)


def _value_in(text: str, ref: SecretRef) -> str:
    key = ref.key or ref.reference.partition("#")[2]
    try:
        value = json.loads(text)[key] if key else text
    except (ValueError, TypeError, KeyError):
        value = ""
    if not isinstance(value, str) or not value:
        reason = f"it has no text in the field {key!r}" if key else "it is empty"
        raise SecretError(ref.reference, reason)
    if not ref.accepts(value):
        raise SecretError(ref.reference, f"it is not {ref.expected}")
    return value


def _ask_secrets_manager(name: str, region: str | None) -> str:
    from boto3.session import Session
    from botocore.config import Config

    if re.match("arn:.*?:.*?:.+?:", name):
        region = name.split(":")[3]
    config = Config(
        connect_timeout=AWS_TIMEOUT_SECONDS,
        read_timeout=AWS_TIMEOUT_SECONDS,
        retries={"total_max_attempts": AWS_ATTEMPTS, "mode": "standard"},
    )
    # boto3 reads AWS_DEFAULT_REGION only; AWS sets AWS_REGION in its runtimes.
    region = region or os.environ.get("AWS_REGION")
    client = Session().client("secretsmanager", region_name=region, config=config)
    return str(client.get_secret_value(SecretId=name).get("SecretString", "")).strip()
