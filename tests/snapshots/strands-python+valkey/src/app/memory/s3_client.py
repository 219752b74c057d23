"""The connection to one bucket: calls in threads, bounded in time, and what their errors mean."""

import asyncio
import logging
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

from boto3.session import Session  # type: ignore[import-untyped]
from botocore import exceptions  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]

from ..contract import describe
from .backends import Unavailable
from .causes import LATE, UNSENT, cause_of, told
from .secrets import Secrets

log = logging.getLogger(__name__)
Result = TypeVar("Result")
THREADS = 32  # of its own: threads that hang must not keep the model's from running
FAILURES = (exceptions.ClientError, exceptions.BotoCoreError, OSError, ValueError)
BUCKET = "[A-Za-z0-9._-]{1,255}|arn:[A-Za-z0-9:/._-]{1,255}"


class S3Client:
    """A client of the bucket that a secret names; it is made by the first call."""

    def __init__(self, reference: str, region: str, seconds: int, secrets: Secrets) -> None:
        self._reference, self._region, self._seconds = reference, region, seconds
        self._secrets, self._lock = secrets, Lock()
        self._threads = ThreadPoolExecutor(THREADS, "s3")
        self._client: Any = None
        self._bucket = ""

    async def run(self, use: Callable[[Any, str], Result]) -> Result:
        """What `use` returns of client and bucket. Raises Unavailable, at the latest in time."""
        try:
            async with asyncio.timeout(self._seconds):
                bucket = await self._secrets.get(self._reference)
                if not re.fullmatch(BUCKET, bucket):
                    what = f"secret {self._reference!r} is no name of a bucket"
                    raise Unavailable(what, is_certain=True)
                self._bucket, loop = bucket, asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, self._call, use, bucket)
        except (*FAILURES, Unavailable) as error:
            raise self._failure(error) from None

    def later(self, what: str, use: Callable[[Any, str], object]) -> None:
        """Begin what no turn waits for, in the bucket of the last call; failing is a warning."""

        def work() -> None:
            try:
                self._call(use, self._bucket)
            except Exception as error:  # noqa: BLE001 (whatever it is, the turn is committed)
                log.warning("s3: %s failed: %s", what, self._failure(error))

        self._threads.submit(work)

    def close(self) -> None:
        """Take no more calls."""
        self._threads.shutdown(wait=False)

    def _failure(self, error: Exception) -> Unavailable:
        name = f"bucket {self._bucket!r}" if self._bucket else f"secret {self._reference!r}"
        name, status = f"{name} in {self._region}", 0
        if isinstance(error, Unavailable):
            if error.is_certain:
                return error
            why = str(error)
        elif isinstance(error, exceptions.ClientError):
            status = status_of(error)
            why = f"{words_of(error)} (HTTP {status})"
        else:
            why = cause_of(error) or describe(error)
        why = f"no answer within {self._seconds} s" if why == LATE else why
        return Unavailable(told(name, why), is_certain=why in UNSENT or 400 <= status < 500)

    def _call(self, use: Callable[[Any, str], Result], bucket: str) -> Result:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
        return use(self._client, bucket)

    def _connect(self) -> Any:
        retries: Any = {"total_max_attempts": 2, "mode": "standard"}
        # Both attempts end in time: one that goes on alone could commit what was called failed.
        seconds = 0.45 * self._seconds
        limits: Any = {"connect_timeout": seconds, "read_timeout": seconds}
        is_own = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        style: Any = {"addressing_style": "path"} if is_own else {}
        config = Config(retries=retries, max_pool_connections=THREADS, s3=style, **limits)
        return Session().client("s3", region_name=self._region, config=config)


def status_of(error: exceptions.ClientError) -> int:
    """The HTTP status of an error reply."""
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def code_of(error: exceptions.ClientError) -> str:
    """The code of an error reply, such as NoSuchKey."""
    return str(error.response["Error"]["Code"])


def words_of(error: exceptions.ClientError) -> str:
    """Why S3 refused."""
    return cause_of(None, code_of(error), status_of(error)) or code_of(error)
