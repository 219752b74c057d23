"""Sessions in Amazon S3: one object each, replaced by conditional writes."""

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from boto3.session import Session
from botocore import exceptions
from botocore.config import Config
from uuid_utils import uuid7

from ..collections.models import Collection
from ..collections.secrets import SecretError, Secrets
from ..collections.session_backend import S3Config
from ..contract import SESSION_ID
from ..deadline import time_limit
from ..log import describe
from ..sessions.session_store import Stored
from .base import Conflict, StoreUnavailable, Warned, read_limit
from .settings import StoreSettings

log = logging.getLogger(__name__)
Result = TypeVar("Result")
THREADS = 32  # of its own: hanging calls must not block those of the model
LATEST, HISTORY, ASIDE = "snapshot_latest.json", "immutable_history/", "set_aside/"
PAUSES = (0.05, 0.2)  # seconds, while another write of the object is in progress
UNSENT = (
    exceptions.NoRegionError,
    exceptions.NoCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.EndpointConnectionError,
    exceptions.ConnectTimeoutError,
)
# Bodies that were cut off or changed on their way.
SPOILT = (
    exceptions.IncompleteReadError,
    exceptions.ResponseStreamingError,
    exceptions.FlexibleChecksumError,
)

KEPT = "The bucket keeps old versions, also of sessions that ended or were forgotten: "
KEPT += "let a lifecycle rule delete noncurrent versions soon."


class S3Store:
    """A DurableStore of the objects `<prefix>/<session_id>/agent/<agent_id>/snapshots/…`.

    They are `snapshot_latest.json`, `immutable_history/snapshot_<uuid7>.json` for each checkpoint,
    and `set_aside/snapshot_<uuid7>.json` for each quarantined snapshot. A revision is an ETag. An
    object older than `ttl_days` counts as absent, whether S3 has deleted it or not.
    """

    def __init__(
        self, collection: Collection, agent_id: str, settings: StoreSettings, secrets: Secrets
    ) -> None:
        config = cast(S3Config, collection.backend)
        self._id, self._days, self._settings = collection.collection_id, config.ttl_days, settings
        self._max_bytes = read_limit(settings.max_snapshot_bytes)
        self.root = f"{config.prefix}/" if config.prefix else ""
        self.middle = f"/agent/{agent_id}/snapshots/"
        (self._ref,), self._region = config.secret_refs(), config.region
        self._secrets, self._seconds = secrets, settings.store_timeout_seconds
        self._s3: Any = None
        self._lock, self._limiter = asyncio.Lock(), CapacityLimiter(THREADS)
        self._tidying = set[asyncio.Task[None]]()
        # Without a prefix a lifecycle rule would delete the objects of others.
        self._is_rule_set = not self.root
        self.contact = f"the bucket of secret {self._ref.reference!r} in {config.region}"

    async def load(self, session_id: str, known: Stored | None = None) -> Stored | None:
        key = self._folder(session_id) + LATEST
        return await self.run(lambda bucket: bucket.get(key, known, self._max_bytes))

    async def save(
        self, session_id: str, snapshot: bytes, expected: str | None, checkpoint: str | None = None
    ) -> str:
        folder = self._folder(session_id)

        def save(bucket: Bucket) -> str:
            if expected:
                return bucket.put(folder + LATEST, snapshot, IfMatch=expected)
            return bucket.create(folder + LATEST, snapshot)

        revision = await self.run(save)
        if checkpoint:
            await self.save_checkpoint(session_id, snapshot, checkpoint)
        if not self._is_rule_set:
            self._is_rule_set = True
            self._start("lifecycle rule", lambda bucket: bucket.set_rule(self._id, self.root))
        return revision

    async def save_checkpoint(self, session_id: str, snapshot: bytes, checkpoint: str) -> None:
        history, kept = self._folder(session_id) + HISTORY, self._settings.checkpoints
        key = f"{history}snapshot_{checkpoint}.json"

        def trim(bucket: Bucket) -> None:
            for old in bucket.keys(history)[:-kept]:
                bucket.delete(old)

        try:
            await self.run(lambda bucket: bucket.put(key, snapshot))
        except (Conflict, StoreUnavailable) as error:
            log.warning("session %s: no checkpoint: %s", session_id, str(error) or "a conflict")
        else:
            if kept:
                self._start("deletion of old checkpoints", trim)

    async def load_checkpoint(self, session_id: str, checkpoint: str) -> bytes | None:
        key = f"{self._folder(session_id)}{HISTORY}snapshot_{checkpoint}.json"
        found = await self.run(lambda bucket: bucket.get(key, None, self._max_bytes))
        return found.snapshot if found else None

    async def checkpoints(self, session_id: str) -> list[str]:
        folder = f"{self._folder(session_id)}{HISTORY}"
        keys = await self.run(lambda bucket: bucket.keys(folder))
        ids = [key.removeprefix(f"{folder}snapshot_").removesuffix(".json") for key in keys]
        return ids[-self._settings.checkpoints :]  # the others are being deleted

    async def quarantine(self, session_id: str, revision: str | None) -> str:
        folder = self._folder(session_id)
        name = f"{folder}{ASIDE}snapshot_{uuid7()}.json"
        await self.run(lambda bucket: bucket.move(folder + LATEST, name, revision or ""))
        return name

    async def quarantined(self, session_id: str) -> list[str]:
        folder = f"{self._folder(session_id)}{ASIDE}"
        return await self.run(lambda bucket: bucket.keys(folder))

    async def sessions(self) -> list[str]:
        own = re.compile(f"{re.escape(self.root)}({SESSION_ID}){re.escape(self.middle)}")
        ids, token = set[str](), None
        while True:  # each page is a call with its own time limit
            page = await self.run(partial(Bucket.page, prefix=self.root, token=token))
            ids |= {found[1] for key in page[0] if (found := own.match(key))}
            if not (token := page[1]):
                return sorted(ids)

    async def end(self, session_id: str) -> None:
        folder = self._folder(session_id)

        def end(bucket: Bucket) -> None:
            bucket.delete(folder + LATEST)  # first: then a running turn can no longer be committed
            bucket.delete_all(folder, but=folder + LATEST)  # a new one of another replica

        await self.run(end)

    async def warnings(self) -> list[Warned]:
        self._is_rule_set = True  # the session that a check saves sets no rule
        try:
            keeps = await self.run(
                lambda bucket: bucket.s3.get_bucket_versioning(Bucket=bucket.name)
            )
        except StoreUnavailable:
            return []
        return [("AML-W162", KEPT)] if "Status" in keeps else []  # unset: it never kept versions

    async def close(self) -> None:
        if self._tidying:
            await asyncio.wait(self._tidying, timeout=self._seconds)
        if self._s3:
            self._s3.close()

    def _folder(self, session_id: str) -> str:
        return f"{self.root}{session_id}{self.middle}"

    def _start(self, what: str, use: Callable[["Bucket"], object]) -> None:
        """Start work in the background; log a failure."""

        async def work() -> None:
            try:
                await self.run(use)
            except StoreUnavailable as error:
                log.warning("s3: %s failed: %s", what, error)

        self._tidying.add(task := asyncio.create_task(work()))
        task.add_done_callback(self._tidying.discard)

    async def run(self, use: Callable[["Bucket"], Result]) -> Result:
        """Return the result of `use` in a thread, within a time limit; raise StoreUnavailable."""
        where = f"secret {self._ref.reference!r}"
        try:
            async with time_limit(self._seconds):
                name = await self._secrets.get(self._ref)
                where = f"bucket {name!r} in {self._region}"
                async with self._lock:
                    self._s3 = self._s3 or await self._in_thread(self._connect)
                bucket = Bucket(self._s3, name, self._days)
                return await self._in_thread(lambda: use(bucket))
        except SecretError as error:
            raise StoreUnavailable(str(error), indeterminate=False) from None
        except TimeoutError:
            raise StoreUnavailable(f"{where}: no answer within {self._seconds} s") from None
        except exceptions.ClientError as error:
            why, is_refusal = f"{describe(error)} HTTP {_status(error)}", _status(error) < 500
            raise StoreUnavailable(f"{where}: {why}", indeterminate=not is_refusal) from None
        except (exceptions.BotoCoreError, OSError, ValueError) as error:
            is_unsent = isinstance(error, UNSENT)
            what = f"{where}: {describe(error)}"
            raise StoreUnavailable(what, indeterminate=not is_unsent) from None

    async def _in_thread(self, use: Callable[[], Result]) -> Result:
        return await to_thread.run_sync(use, abandon_on_cancel=True, limiter=self._limiter)

    def _connect(self) -> Any:
        # Both attempts end in time: a stray attempt could commit a turn that has failed.
        seconds = 0.45 * self._seconds
        is_own = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        config = Config(
            connect_timeout=seconds,
            read_timeout=seconds,
            retries={"total_max_attempts": 2, "mode": "standard"},
            max_pool_connections=THREADS,
            s3={"addressing_style": "path"} if is_own else {},
        )
        return Session().client("s3", region_name=self._region, config=config)


@dataclass(frozen=True)
class Bucket:
    """The objects of a bucket. Its methods block, and raise the errors of botocore."""

    s3: Any
    name: str
    days: int | None  # to live since the last change

    def get(self, key: str, known: Stored | None, max_bytes: int) -> Stored | None:
        """Return the object, or None; `known` itself if unchanged; empty if larger than allowed."""
        try:
            return self._get(key, known, max_bytes)
        except SPOILT:
            return self._get(key, known, max_bytes)

    def _get(self, key: str, known: Stored | None, max_bytes: int) -> Stored | None:
        condition = {"IfNoneMatch": known.revision} if known else {}
        try:
            found = self.s3.get_object(Bucket=self.name, Key=key, **condition)
        except exceptions.ClientError as error:
            if _code(error) == "NoSuchKey":
                return None
            if _status(error) != 304:
                raise
            reply = error.response
            if self.days and "last-modified" not in reply["ResponseMetadata"]["HTTPHeaders"]:
                reply = self._head(key)  # some servers omit it
            return known if reply and not self.is_expired(reply) else None
        # Not `with found["Body"]`, whose `read` checks neither the length nor the checksum.
        with closing(found["Body"]) as body:
            snapshot = body.read() if found["ContentLength"] <= max_bytes else b""
        return None if self.is_expired(found) else Stored(found["ETag"], snapshot)

    def put(self, key: str, body: bytes, **condition: str) -> str:
        """Write the object and return its ETag. Raises Conflict."""
        more: Any = {"Body": body, "ContentType": "application/json", **condition}
        pauses = iter(PAUSES)
        while True:
            try:
                return str(self.s3.put_object(Bucket=self.name, Key=key, **more)["ETag"])
            except exceptions.ClientError as error:
                pause = next(pauses, None)
                if pause is None or _code(error) != "ConditionalRequestConflict":
                    raise _conflict(error) from None
            time.sleep(pause)

    def create(self, key: str, body: bytes) -> str:
        """Write an object that is absent or expired, and return its ETag. Raises Conflict."""
        try:
            return self.put(key, body, IfNoneMatch="*")
        except Conflict:
            found = self._head(key)
            if not found or not self.is_expired(found):
                raise
        return self.put(key, body, IfMatch=found["ETag"])

    def _head(self, key: str) -> Any:
        """Return the facts of an object, or None if it has been deleted."""
        try:
            return self.s3.head_object(Bucket=self.name, Key=key)
        except exceptions.ClientError as error:
            if _status(error) == 404:
                return None
            raise

    def move(self, old: str, new: str, revision: str) -> None:
        """Move the object; a failure halfway leaves both. Raises Conflict."""
        source = {"CopySource": {"Bucket": self.name, "Key": old}, "CopySourceIfMatch": revision}
        try:
            self.s3.copy_object(Bucket=self.name, Key=new, **source)
        except exceptions.ClientError as error:
            raise _conflict(error) from None
        try:
            self.s3.delete_object(Bucket=self.name, Key=old, IfMatch=revision)
        except exceptions.ClientError as error:
            if _status(error) != 404:  # 404: a delete whose acknowledgement was lost
                raise _conflict(error) from None

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with `prefix` and have not expired, in order."""
        return [key for page in self._pages(prefix) for key in self._live(page)]

    def page(self, prefix: str, token: str | None) -> tuple[list[str], str | None]:
        """Return a page of such keys, and the token of the next page."""
        more = {"ContinuationToken": token} if token else {}
        page = self.s3.list_objects_v2(Bucket=self.name, Prefix=prefix, **more)
        return self._live(page), page.get("NextContinuationToken")

    def delete(self, key: str) -> None:
        """Delete an object. Idempotent."""
        self.s3.delete_object(Bucket=self.name, Key=key)

    def delete_all(self, prefix: str, but: str) -> None:
        """Delete the objects that begin with `prefix`, expired or not, except for one key."""
        for page in self._pages(prefix):
            keys = [item["Key"] for item in page.get("Contents", []) if item["Key"] != but]
            if keys:
                what = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
                reply = self.s3.delete_objects(Bucket=self.name, Delete=what)
                for error in reply.get("Errors", []):
                    raise StoreUnavailable(f"an object was not deleted: {error['Code']}")

    def set_rule(self, collection_id: str, prefix: str) -> None:
        """Set the lifecycle rule that expires objects after `days`, or remove it for None."""
        # With the prefix, as several projects may share a bucket; once it was without.
        id, former = f"aml-{prefix}{collection_id}"[:255], f"aml-{collection_id}"
        rule = {
            "ID": id,
            "Filter": {"Prefix": prefix},
            "Status": "Enabled",
            "Expiration": {"Days": self.days},
            "NoncurrentVersionExpiration": {"NoncurrentDays": self.days},
        }
        found: dict[str, Any] = {}
        try:
            found = self.s3.get_bucket_lifecycle_configuration(Bucket=self.name)
        except exceptions.ClientError as error:
            if _code(error) != "NoSuchLifecycleConfiguration":
                raise
        rules = found.get("Rules", [])  # also those of others: S3 replaces all at once
        of_prefix = [other for other in rules if other.get("Filter") == rule["Filter"]]
        own = [other for other in of_prefix if other.get("ID") in {id, former}]
        wanted = [other for other in rules if other not in own] + ([rule] if self.days else [])
        if rule in rules or wanted == rules:
            return
        size = "TransitionDefaultMinimumObjectSize"  # a setting beside the rules
        more = {size: found[size]} if size in found else {}
        if wanted:
            self.s3.put_bucket_lifecycle_configuration(
                Bucket=self.name, LifecycleConfiguration={"Rules": wanted}, **more
            )
        else:
            self.s3.delete_bucket_lifecycle(Bucket=self.name)
        log.info("s3: lifecycle rule %s: %s days", id, self.days or "unlimited")

    def _pages(self, prefix: str) -> Iterator[Any]:
        paginator = self.s3.get_paginator("list_objects_v2")
        yield from paginator.paginate(Bucket=self.name, Prefix=prefix)

    def _live(self, page: Any) -> list[str]:
        items = page.get("Contents", [])
        return [item["Key"] for item in items if not self.is_expired(page, item["LastModified"])]

    def is_expired(self, reply: Any, changed: datetime | None = None) -> bool:
        """Whether an object has expired, by the clock of S3."""
        headers = reply["ResponseMetadata"]["HTTPHeaders"]
        if self.days is None:
            return False
        changed = changed or parsedate_to_datetime(headers["last-modified"])
        age: timedelta = parsedate_to_datetime(headers["date"]) - changed
        return age.total_seconds() > self.days * 86_400


def _status(error: exceptions.ClientError) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def _code(error: exceptions.ClientError) -> str:
    return str(error.response["Error"]["Code"])


def _conflict(error: exceptions.ClientError) -> Exception:
    """Return Conflict when a condition did not hold, else the error."""
    is_lost = _status(error) in {409, 412} or _code(error) == "NoSuchKey"
    return Conflict() if is_lost else error
