"""The objects of one bucket: conditional changes, and none that is older than its time to live."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from .backends import Conflict, Stored, Unavailable
from .causes import cause_of
from .s3_client import code_of, status_of


@dataclass(frozen=True)
class Objects:
    """What the threads of the store do; each method blocks and raises what botocore raises."""

    s3: Any
    bucket: str
    days: int | None  # to live since the last change
    now: Callable[[], datetime] | None  # None: the clock of S3, so that no other one matters

    def get(self, key: str, known: str | None, most: int) -> Stored | None:
        """The object, or just its revision when that is `known`; over `most` bytes it is empty."""
        condition = {"IfNoneMatch": known} if known else {}
        try:
            found = self.s3.get_object(Bucket=self.bucket, Key=key, **condition)
        except ClientError as error:
            if code_of(error) == "NoSuchKey":
                return None
            if status_of(error) != 304:
                raise
            reply = error.response
            if self.days and "last-modified" not in reply["ResponseMetadata"]["HTTPHeaders"]:
                reply = self._head(key)  # some servers leave it out of a 304
            return None if self._is_expired(reply) else Stored(known, None)
        with found["Body"] as body:
            snapshot = body.read() if found["ContentLength"] <= most else b""
        return None if self._is_expired(found) else Stored(found["ETag"], snapshot)

    def put(self, key: str, body: bytes, **condition: str) -> str:
        """Write the object and return its revision. Raises Conflict."""
        what: Any = {"Body": body, "ContentType": "application/json", **condition}
        try:
            return str(self.s3.put_object(Bucket=self.bucket, Key=key, **what)["ETag"])
        except ClientError as error:
            raise _conflict(error) from None

    def create(self, key: str, body: bytes) -> str:
        """Write an object that is absent or expired, and return its revision. Raises Conflict."""
        try:
            return self.put(key, body, IfNoneMatch="*")
        except Conflict:
            found = self._head(key)
            if not self._is_expired(found):
                raise
        return self.put(key, body, IfMatch=found["ETag"])

    def move(self, old: str, new: str, revision: str) -> None:
        """Move the object; both are there when that fails halfway. Raises Conflict."""
        source = {"CopySource": {"Bucket": self.bucket, "Key": old}, "CopySourceIfMatch": revision}
        try:
            self.s3.copy_object(Bucket=self.bucket, Key=new, **source)
        except ClientError as error:
            raise _conflict(error) from None
        try:
            self.s3.delete_object(Bucket=self.bucket, Key=old, IfMatch=revision)
        except ClientError as error:
            if status_of(error) != 404:  # or else it was deleted, and the reply lost
                raise _conflict(error) from None

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin so and have not expired, in order."""
        return [key for page in self._pages(prefix) for key in self._live(page)]

    def page(self, prefix: str, token: str | None) -> tuple[list[str], str | None]:
        """A page of such keys, and the token of the next one."""
        more = {"ContinuationToken": token} if token else {}
        page = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix, **more)
        return self._live(page), page.get("NextContinuationToken")

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the objects, there or not."""
        for key in keys:
            self.s3.delete_object(Bucket=self.bucket, Key=key)

    def delete_all(self, prefix: str, but: str) -> None:
        """Delete what begins so, expired or not, but for one key."""
        for page in self._pages(prefix):
            found = [it["Key"] for it in page.get("Contents", [])]
            if items := [{"Key": key} for key in found if key != but]:
                what = {"Objects": items, "Quiet": True}
                reply = self.s3.delete_objects(Bucket=self.bucket, Delete=what)
                for error in reply.get("Errors", []):
                    why = cause_of(None, error["Code"]) or error["Code"]
                    raise Unavailable(f"one of the objects was not deleted: {why}")

    def _pages(self, prefix: str) -> Any:
        paginator = self.s3.get_paginator("list_objects_v2")
        return paginator.paginate(Bucket=self.bucket, Prefix=prefix)

    def _live(self, page: Any) -> list[str]:
        items = page.get("Contents", [])
        return [it["Key"] for it in items if not self._is_expired(page, it["LastModified"])]

    def _head(self, key: str) -> Any:
        return self.s3.head_object(Bucket=self.bucket, Key=key)

    def _is_expired(self, reply: Any, changed: datetime | None = None) -> bool:
        headers = reply["ResponseMetadata"]["HTTPHeaders"]
        if self.days is None:
            return False
        now = self.now() if self.now else parsedate_to_datetime(headers["date"])
        changed = changed or parsedate_to_datetime(headers["last-modified"])
        return (now - changed).total_seconds() > self.days * 86_400


async def all_keys(run: Callable[[Callable[[Objects], Any]], Awaitable[Any]], prefix: str) -> Any:
    """The keys that begin so and have not expired; each page is a call, bounded by itself."""
    found, token = await run(lambda objects: objects.page(prefix, None))
    while token:
        keys, token = await run(partial(Objects.page, prefix=prefix, token=token))
        found += keys
    return found


def _conflict(error: ClientError) -> Exception:
    """The error, or Conflict when a condition did not hold."""
    is_lost = status_of(error) in {409, 412} or code_of(error) == "NoSuchKey"
    return Conflict() if is_lost else error
