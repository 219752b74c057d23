"""Read secrets by reference from the environment or AWS Secrets Manager, and cache them.

A reference is `env:NAME`, an ARN or a path. For a path, the variable of the same name in upper case
has priority (`secrets/valkey/sessions`: SECRETS_VALKEY_SESSIONS). If it is not set, the path names
a secret in AWS Secrets Manager. `#key` selects a field of a JSON secret.
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
    """A secret cannot be read. The message has its reference and variable, never its value."""

    def __init__(self, reference: str, reason: str) -> None:
        variable = variable_of(reference)
        suffix = f" (variable {variable})" if variable else ""
        super().__init__(f"cannot read the secret {reference!r}{suffix}: {reason}")


def variable_of(reference: str) -> str:
    """Return the environment variable that can hold the secret; "" for an ARN."""
    path = reference.partition("#")[0]
    if path.startswith("env:"):
        return path.removeprefix("env:")
    return "" if path.startswith("arn:") else re.sub("[^A-Za-z0-9]+", "_", path).upper()


def is_set(variable: str) -> bool:
    """Whether an environment variable has a value that is not blank."""
    return os.environ.get(variable, "").strip() != ""


def unset_variables(settings: CoreSettings, collection: Collection) -> list[str]:
    """Return the variables to set before the echo model uses a collection.

    Until then, its data stays local. With any other model, the collection is always used.
    """
    names = [variable_of(ref.reference) for ref in collection.backend.secret_refs()]
    is_offline = settings.model == "offline"
    return [name for name in names if is_offline and name and not is_set(name)]


def has_aws_credentials() -> bool:
    """Whether the environment or the user's AWS files provide credentials."""
    home = Path("~/.aws").expanduser()
    files = [Path(os.environ.get(name) or home / file) for name, file in AWS_FILES.items()]
    return any(map(os.environ.get, AWS_VARIABLES)) or any(file.is_file() for file in files)


class Secrets:
    """Caches secrets for `secret_cache_seconds`; concurrent callers share a read.

    The last value stays in use during a refresh, and if the refresh fails: an outage of AWS Secrets
    Manager must not stop an agent whose secrets have not changed.
    """

    def __init__(self, settings: DeclarationSettings) -> None:
        self._seconds = settings.secret_cache_seconds
        self._prefix = settings.secrets_prefix
        self._values: dict[SecretRef, tuple[str, float]] = {}  # value, expiry
        self._reads: dict[SecretRef, asyncio.Task[str]] = {}

    async def get(self, ref: SecretRef, was_refused: bool = False) -> str:
        """Return a secret within a time limit. Raises SecretError.

        `was_refused` forces a refresh: the service may have rotated the secret.
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
            log.warning("%s; using its last value", error)
        self._values[ref] = value, monotonic() + self._seconds
        return value

    async def _read(self, ref: SecretRef) -> str:
        if is_set(variable_of(ref.reference)):
            return read_variable(ref)
        if ref.reference.startswith("env:"):
            raise SecretError(ref.reference, "the variable is not set")
        return _value_in(await self._read_from_aws(ref), ref)

    async def _read_from_aws(self, ref: SecretRef) -> str:
        name = ref.reference.partition("#")[0]
        name = name if name.startswith("arn:") else self._prefix + name
        try:
            with anyio.fail_after(AWS_TIMEOUT_SECONDS * AWS_ATTEMPTS):
                read = _read_secrets_manager
                return await anyio.to_thread.run_sync(
                    read, name, ref.region, abandon_on_cancel=True
                )
        except Exception as error:  # noqa: BLE001 (boto3's errors have no common class)
            reason = f"AWS Secrets Manager failed with {describe(error)}"
            raise SecretError(ref.reference, reason) from None


def read_variable(ref: SecretRef) -> str:
    """Return the secret from the reference's environment variable. Raises SecretError."""
    return _value_in(os.environ[variable_of(ref.reference)].strip(), ref)


def _value_in(text: str, ref: SecretRef) -> str:
    key = ref.key or ref.reference.partition("#")[2]
    try:
        value = json.loads(text)[key] if key else text
    except (ValueError, TypeError, KeyError):
        value = ""
    if not isinstance(value, str) or not value:
        reason = f"its field {key!r} has no text" if key else "it is empty"
        raise SecretError(ref.reference, reason)
    if not ref.accepts(value):
        raise SecretError(ref.reference, f"it is not {ref.expected}")
    return value


def _read_secrets_manager(name: str, region: str | None) -> str:
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
