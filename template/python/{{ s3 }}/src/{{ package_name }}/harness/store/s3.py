"""Sessions in Amazon S3: an object per session, replaced by conditional writes."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from boto3.session import Session
from botocore import exceptions
from botocore.config import Config
from uuid_utils import uuid7

from ..collections.erasure import Stock, for_each
from ..collections.models import Collection
from ..collections.secrets import SecretError, Secrets
from ..collections.session_backend import S3Config
from ..deadline import time_limit
from ..log import describe
from ..sessions.session_store import Stored
from .base import (
    NO_FILES,
    Conflict,
    Files,
    StoreUnavailable,
    StoreWarning,
    TooLarge,
    read_limit,
    segment_of,
    session_of,
)
from .settings import StoreSettings

log = logging.getLogger(__name__)
Result = TypeVar("Result")
THREADS = 32  # a separate pool, so that hanging calls cannot block model calls
LATEST = "snapshot_latest.json"
HISTORY = "immutable_history/"
FILES = "files/"
ASIDE = "set_aside/"
FILE_SECONDS = 3600  # a save that still needs an uploaded file is not older
PAUSES = (0.05, 0.2)  # seconds before a retry while another write is in progress
# Response bodies that the network cut or changed.
DAMAGED = (
    exceptions.IncompleteReadError,
    exceptions.ResponseStreamingError,
    exceptions.FlexibleChecksumError,
)

Versions = list[dict[str, Any]]  # in the format of S3
OLD_VERSIONS = (
    "The bucket keeps old versions, including those of ended and erased sessions: "
    "add a lifecycle rule that deletes noncurrent versions."
)


class S3Store:
    """A DurableStore of the objects `<prefix>/<session_id>/agent/<agent_id>/snapshots/…`.

    The latest snapshot is `snapshot_latest.json`. Each checkpoint is
    `immutable_history/snapshot_<uuid7>.json`, each quarantined snapshot
    `set_aside/snapshot_<uuid7>.json`, each file `files/<name>`. A revision is an ETag. An object
    older than `ttl_days` counts as absent, even before S3 deletes it.
    """

    def __init__(
        self, collection: Collection, agent_id: str, settings: StoreSettings, secrets: Secrets
    ) -> None:
        config = cast(S3Config, collection.backend)
        self._id = collection.collection_id
        self._days = config.ttl_days
        self._settings = settings
        self._max_bytes = read_limit(settings.max_snapshot_bytes)
        self.root = f"{config.prefix}/" if config.prefix else ""
        self.middle = f"/agent/{agent_id}/snapshots/"
        (self._ref,) = config.secret_refs()
        self._region = config.region
        self._secrets = secrets
        self._seconds = settings.store_timeout_seconds
        self._s3: Any = None
        self._lock = asyncio.Lock()
        self._limiter = CapacityLimiter(THREADS)
        self._background = set[asyncio.Task[None]]()
        # Without a prefix, a lifecycle rule would delete unrelated objects of the bucket.
        self._is_rule_set = not self.root
        self.contact = f"the bucket of secret {self._ref.reference!r} in {config.region}"

    async def load(self, session_id: str, known: Stored | None = None) -> Stored | None:
        key = self._folder(session_id) + LATEST
        return await self.run(lambda bucket: bucket.get(key, known, self._max_bytes))

    async def save(
        self,
        session_id: str,
        snapshot: bytes,
        expected: str | None,
        checkpoint: str | None = None,
        files: Files = NO_FILES,
    ) -> str:
        folder = self._folder(session_id)
        for name, content in files.items():
            await self.run(partial(Bucket.put_file, key=folder + FILES + name, content=content))

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
        history = self._folder(session_id) + HISTORY
        count = self._settings.checkpoints
        key = f"{history}snapshot_{checkpoint}.json"

        def trim(bucket: Bucket) -> None:
            for old in bucket.keys(history)[:-count]:
                bucket.delete(old)

        try:
            await self.run(lambda bucket: bucket.put(key, snapshot))
        except (Conflict, StoreUnavailable) as error:
            log.warning(
                "session %s: the checkpoint was not saved: %s",
                session_id,
                str(error) or "a conflict",
            )
        else:
            if count:
                self._start("deletion of old checkpoints", trim)

    async def load_checkpoint(self, session_id: str, checkpoint: str) -> bytes | None:
        key = f"{self._folder(session_id)}{HISTORY}snapshot_{checkpoint}.json"
        stored = await self.run(lambda bucket: bucket.get(key, None, self._max_bytes))
        return stored.snapshot if stored else None

    async def checkpoints(self, session_id: str) -> list[str]:
        folder = f"{self._folder(session_id)}{HISTORY}"
        keys = await self.run(lambda bucket: bucket.keys(folder))
        ids = [key.removeprefix(f"{folder}snapshot_").removesuffix(".json") for key in keys]
        return ids[-self._settings.checkpoints :]  # a background task deletes older checkpoints

    async def load_files(self, session_id: str, names: Sequence[str]) -> Files:
        folder = self._folder(session_id) + FILES

        async def load(name: str) -> Stored | None:
            return await self.run(lambda bucket: bucket.get_file(folder + name, self._max_bytes))

        loaded = await asyncio.gather(*map(load, names))
        found = zip(names, loaded, strict=True)
        return {name: stored.snapshot for name, stored in found if stored}

    async def trim_files(self, session_id: str, dropped: Sequence[str] = ()) -> None:
        folder = self._folder(session_id)

        def trim(bucket: Bucket) -> None:
            if old := bucket.old_keys(folder + FILES, FILE_SECONDS):
                keys = [key for key in bucket.keys(folder) if not key.startswith(folder + FILES)]
                snapshots = [bucket.get(key, None, self._max_bytes) for key in keys]
                texts = [stored.snapshot for stored in snapshots if stored]
                for key in old:
                    name = key.removeprefix(folder + FILES).encode()
                    # The store returns a snapshot that is too large empty: keep all files.
                    if all(text and name not in text for text in texts):
                        bucket.delete(key)

        try:
            await self.run(trim)
        except StoreUnavailable as error:
            log.warning("session %s: old files were not deleted: %s", session_id, error)

    async def quarantine(self, session_id: str, revision: str | None) -> str:
        folder = self._folder(session_id)
        name = f"{folder}{ASIDE}snapshot_{uuid7()}.json"
        await self.run(lambda bucket: bucket.move(folder + LATEST, name, revision or ""))
        return name

    async def quarantined(self, session_id: str) -> list[str]:
        folder = f"{self._folder(session_id)}{ASIDE}"
        return await self.run(lambda bucket: bucket.keys(folder))

    async def sessions(self) -> list[str]:
        ids = set[str]()
        token = None
        while True:  # each page has its own time limit
            page = await self.run(partial(Bucket.page, prefix=self.root, token=token))
            ids |= {id for key in page[0] if (id := self.session_in(key))}
            if not (token := page[1]):
                return sorted(ids)

    async def end(self, session_id: str) -> None:
        folder = self._folder(session_id)
        rest = partial(Bucket.delete_all, prefix=folder, but=folder + LATEST)
        await self.run(rest)
        # After the rest, so that a retry of a failed end finds the session.
        await self.run(partial(Bucket.delete, key=folder + LATEST))
        # Again, for the data of running turns; keep a snapshot that another replica saved since.
        await self.run(rest)

    def leftovers(self) -> list[Stock]:
        """Return all versions of all objects, such as those of ended or expired sessions."""

        async def pages() -> AsyncIterator[list[str]]:
            markers: dict[str, str] = {}
            while True:  # each page has its own time limit
                page = await self.run(partial(Bucket.versions, prefix=self.root, markers=markers))
                versions, markers = page
                own = [it for it in versions if self.session_in(it["Key"])]
                yield [f"{it['VersionId']} {it['Key']}" for it in own]
                if not markers:
                    return

        async def delete_version(name: str) -> None:
            id, _, key = name.partition(" ")
            await self.run(partial(Bucket.delete_version, key=key, id=id))

        async def delete(names: list[str]) -> int:
            return await for_each(names, delete_version)

        what = "objects of sessions and old versions of them"
        return [Stock(what, self.contact, pages, delete, (StoreUnavailable,))]

    async def warnings(self) -> list[StoreWarning]:
        self._is_rule_set = True  # the test session of a check sets no rule
        try:
            reply = await self.run(
                lambda bucket: bucket.s3.get_bucket_versioning(Bucket=bucket.name)
            )
        except StoreUnavailable:
            return []
        return [("AML-W162", OLD_VERSIONS)] if "Status" in reply else []

    async def close(self) -> None:
        if self._background:
            await asyncio.wait(self._background, timeout=self._seconds)
        if self._s3:
            self._s3.close()

    def session_in(self, key: str) -> str | None:
        """Return the session of an object, or None if the key belongs to no session."""
        segment, middle, _ = key.removeprefix(self.root).partition(self.middle)
        return session_of(segment) if middle else None

    def _folder(self, session_id: str) -> str:
        return f"{self.root}{segment_of(session_id)}{self.middle}"

    def _start(self, name: str, use: Callable[["Bucket"], object]) -> None:
        """Run `use` in the background; log a failure."""

        async def work() -> None:
            try:
                await self.run(use)
            except StoreUnavailable as error:
                log.warning("s3: %s failed: %s", name, error)

        self._background.add(task := asyncio.create_task(work()))
        task.add_done_callback(self._background.discard)

    async def run(self, use: Callable[["Bucket"], Result]) -> Result:
        """Run `use` in a thread with a time limit; return its result. Raises StoreUnavailable."""
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
            message = f"{where}: {describe(error)} HTTP {_status(error)}"
            retries = error.response["ResponseMetadata"].get("RetryAttempts", 0)
            # The response to an earlier attempt of the client may be lost.
            indeterminate = _status(error) >= 500 or retries > 0
            raise StoreUnavailable(message, indeterminate=indeterminate) from None
        except (exceptions.BotoCoreError, OSError, ValueError) as error:
            # Even if it is unsent: an earlier attempt of the client may have been sent.
            raise StoreUnavailable(f"{where}: {describe(error)}") from None

    async def _in_thread(self, use: Callable[[], Result]) -> Result:
        return await to_thread.run_sync(use, abandon_on_cancel=True, limiter=self._limiter)

    def _connect(self) -> Any:
        # Both attempts must end within the limit: a late attempt could commit a failed turn.
        seconds = 0.45 * self._seconds
        is_custom = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        config = Config(
            connect_timeout=seconds,
            read_timeout=seconds,
            retries={"total_max_attempts": 2, "mode": "standard"},
            max_pool_connections=THREADS,
            s3={"addressing_style": "path"} if is_custom else {},
        )
        return Session().client("s3", region_name=self._region, config=config)


@dataclass(frozen=True)
class Bucket:
    """The objects of a bucket. Its methods block and raise botocore errors."""

    s3: Any
    name: str
    days: int | None  # the time to live after the last change

    def get(self, key: str, known: Stored | None, max_bytes: int) -> Stored | None:
        """Return the object, or None; `known` if unchanged; TooLarge above `max_bytes`."""
        try:
            return self._get(key, known, max_bytes)
        except DAMAGED:
            return self._get(key, known, max_bytes)

    def _get(self, key: str, known: Stored | None, max_bytes: int) -> Stored | None:
        condition = {"IfNoneMatch": known.revision} if known else {}
        try:
            reply = self.s3.get_object(Bucket=self.name, Key=key, **condition)
        except exceptions.ClientError as error:
            if _code(error) == "NoSuchKey":
                return None
            if _status(error) != 304:
                raise
            head = error.response
            if self.days and "last-modified" not in head["ResponseMetadata"]["HTTPHeaders"]:
                head = self._head(key)  # some servers omit the header
            return known if head and not self.is_expired(head) else None
        # In `with reply["Body"]`, `read` would check neither the length nor the checksum.
        with closing(reply["Body"]) as body:
            is_too_large = reply["ContentLength"] > max_bytes
            snapshot = b"" if is_too_large else body.read()
        if self.is_expired(reply):
            return None
        return (TooLarge if is_too_large else Stored)(reply["ETag"], snapshot)

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
            head = self._head(key)
            if not head or not self.is_expired(head):
                raise
        return self.put(key, body, IfMatch=head["ETag"])

    def _head(self, key: str) -> Any:
        """Return the metadata of an object, or None if it does not exist."""
        try:
            return self.s3.head_object(Bucket=self.name, Key=key)
        except exceptions.ClientError as error:
            if _status(error) == 404:
                return None
            raise

    def move(self, old: str, new: str, revision: str) -> None:
        """Move the object; a partial failure leaves both objects. Raises Conflict."""
        source = {"CopySource": {"Bucket": self.name, "Key": old}, "CopySourceIfMatch": revision}
        try:
            self.s3.copy_object(Bucket=self.name, Key=new, **source)
        except exceptions.ClientError as error:
            raise _conflict(error) from None
        try:
            self.s3.delete_object(Bucket=self.name, Key=old, IfMatch=revision)
        except exceptions.ClientError as error:
            if _status(error) != 404:  # 404: the response of an earlier delete was lost
                raise _conflict(error) from None

    def put_file(self, key: str, content: bytes) -> None:
        """Write a file."""
        self.s3.put_object(Bucket=self.name, Key=key, Body=content)

    def get_file(self, key: str, max_bytes: int) -> Stored | None:
        """Return a file, even if it is older than the session's last change can be."""
        return replace(self, days=None).get(key, None, max_bytes)

    def old_keys(self, prefix: str, seconds: int) -> list[str]:
        """Return the keys with `prefix` whose objects are older than `seconds`, or have expired."""
        return [
            item["Key"]
            for page in self._pages(prefix)
            for item in page.get("Contents", [])
            if _age(page, item["LastModified"]) > seconds
        ]

    def keys(self, prefix: str) -> list[str]:
        """Return the sorted keys with `prefix` that have not expired."""
        return [key for page in self._pages(prefix) for key in self._live(page)]

    def page(self, prefix: str, token: str | None) -> tuple[list[str], str | None]:
        """Return a page of `keys`, and the token of the next page."""
        more = {"ContinuationToken": token} if token else {}
        page = self.s3.list_objects_v2(Bucket=self.name, Prefix=prefix, **more)
        return self._live(page), page.get("NextContinuationToken")

    def delete(self, key: str) -> None:
        """Delete an object. Idempotent."""
        self.s3.delete_object(Bucket=self.name, Key=key)

    def delete_all(self, prefix: str, but: str) -> None:
        """Delete all objects with `prefix`, including expired objects, except `but`."""
        for page in self._pages(prefix):
            keys = [item["Key"] for item in page.get("Contents", []) if item["Key"] != but]
            if keys:
                request = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
                reply = self.s3.delete_objects(Bucket=self.name, Delete=request)
                for error in reply.get("Errors", []):
                    raise StoreUnavailable(f"an object was not deleted: {error['Code']}")

    def versions(self, prefix: str, markers: dict[str, str]) -> tuple[Versions, dict[str, str]]:
        """Return a page of the versions with `prefix`, newest first, and the next markers."""
        page = self.s3.list_object_versions(Bucket=self.name, Prefix=prefix, **markers)
        versions = [{**it, "is_object": True} for it in page.get("Versions", [])]
        for it in versions:
            it["is_live"] = it["IsLatest"] and not self.is_expired(page, it["LastModified"])
        delete_markers = page.get("DeleteMarkers", [])
        versions += [{**it, "is_object": False, "is_live": False} for it in delete_markers]
        versions.sort(key=lambda it: it["LastModified"], reverse=True)
        if not page["IsTruncated"]:
            return versions, {}
        names = {"NextKeyMarker": "KeyMarker", "NextVersionIdMarker": "VersionIdMarker"}
        return versions, {names[name]: page[name] for name in names if page.get(name)}

    def delete_version(self, key: str, id: str) -> None:
        """Delete a version of an object. Idempotent."""
        self.s3.delete_object(Bucket=self.name, Key=key, VersionId=id)

    def set_rule(self, collection_id: str, prefix: str) -> None:
        """Set the lifecycle rule that expires objects after `days`; remove it for None."""
        # The id contains the prefix: projects may share a bucket. Earlier releases omitted it.
        id = f"aml-{prefix}{collection_id}"[:255]
        former_id = f"aml-{collection_id}"
        rule = {
            "ID": id,
            "Filter": {"Prefix": prefix},
            "Status": "Enabled",
            "Expiration": {"Days": self.days},
            "NoncurrentVersionExpiration": {"NoncurrentDays": self.days},
        }
        current: dict[str, Any] = {}
        try:
            current = self.s3.get_bucket_lifecycle_configuration(Bucket=self.name)
        except exceptions.ClientError as error:
            if _code(error) != "NoSuchLifecycleConfiguration":
                raise
        rules = current.get("Rules", [])  # S3 replaces all rules, so keep unrelated rules
        of_prefix = [other for other in rules if other.get("Filter") == rule["Filter"]]
        own = [other for other in of_prefix if other.get("ID") in {id, former_id}]
        wanted = [other for other in rules if other not in own] + ([rule] if self.days else [])
        if rule in rules or wanted == rules:
            return
        size = "TransitionDefaultMinimumObjectSize"  # a setting outside the rules
        more = {size: current[size]} if size in current else {}
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
        """Return whether an object has expired, by the clock of S3."""
        if self.days is None:
            return False
        headers = reply["ResponseMetadata"]["HTTPHeaders"]
        changed = changed or parsedate_to_datetime(headers["last-modified"])
        return _age(reply, changed) > self.days * 86_400


def _age(reply: Any, changed: datetime) -> float:
    """Return the seconds since a change, by the clock of S3."""
    date: datetime = parsedate_to_datetime(reply["ResponseMetadata"]["HTTPHeaders"]["date"])
    return (date - changed).total_seconds()


def _status(error: exceptions.ClientError) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def _code(error: exceptions.ClientError) -> str:
    return str(error.response["Error"]["Code"])


def _conflict(error: exceptions.ClientError) -> Exception:
    """Return Conflict if a condition of the request failed, else the error."""
    is_lost = _status(error) in {409, 412} or _code(error) == "NoSuchKey"
    return Conflict() if is_lost else error
