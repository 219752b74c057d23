"""AWS clients of long-term memory: each call runs in a thread, with a time limit."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, Literal, TypeVar

import anyio.to_thread

from ..collections.fields import SecretRef
from ..collections.secrets import SecretError, Secrets
from ..deadline import time_limit
from ..log import describe
from .base import MemoryRefused, MemoryUnavailable
from .settings import MemorySettings

Result = TypeVar("Result")
Call = Literal["recall", "record", "control"]
SECONDS = 10  # for calls outside turns
THREADS = {"recall": 32, "record": 32, "control": 8}  # hanging calls must not delay other kinds
REFUSED = {"ValidationException", "InvalidInputException"}
BUSY = {409, 429}


class Clients:
    """The clients of a service, one per kind of call and region. They do not retry."""

    name: str  # of the service, for the log
    recall: str  # the botocore service for each kind of call
    record: str
    control: str

    def __init__(self, settings: MemorySettings) -> None:
        self._seconds: dict[str, int] = {"recall": settings.recall_timeout_seconds}
        self._limiters = {call: anyio.CapacityLimiter(count) for call, count in THREADS.items()}
        self._lock = Lock()
        self._clients = dict[tuple[Call, str], Any]()

    async def run(self, call: Call, region: str, use: Callable[[Any], Result]) -> Result:
        """Call `use` with a client in a thread, within a time limit. Raises MemoryUnavailable."""
        run = partial(anyio.to_thread.run_sync, self._run, call, region, use)
        seconds = self._seconds.get(call, SECONDS) + 1
        try:
            async with time_limit(seconds):
                return await run(abandon_on_cancel=True, limiter=self._limiters[call])
        except TimeoutError:
            raise MemoryUnavailable(f"{self.name}: no answer within {seconds} s") from None

    async def warm_up(self, call: Call, region: str) -> None:
        """Make a client before its first call. Never raises: the first call reports a failure."""
        make = partial(self.get, call, region)
        limiter = self._limiters[call]
        with suppress(Exception):
            await anyio.to_thread.run_sync(make, abandon_on_cancel=True, limiter=limiter)

    def get(self, call: Call, region: str) -> Any:
        """Return a client; the first call creates it, which is slow."""
        with self._lock:
            if (call, region) not in self._clients:
                self._clients[call, region] = self.connect(call, region)
            return self._clients[call, region]

    def connect(self, call: Call, region: str) -> Any:
        """Make a client."""
        return self.session(call).client(getattr(self, call), region_name=region)

    def session(self, call: Call) -> Any:
        """Make a session with time limits for its clients."""
        from boto3.session import Session
        from botocore.config import Config
        from botocore.session import get_session

        seconds = self._seconds.get(call, SECONDS)
        core = get_session()
        # `run` ends the call earlier, with a clock that pauses while this process is busy.
        limits: Any = {"connect_timeout": seconds, "read_timeout": 2 * seconds}
        limits |= {"max_pool_connections": THREADS[call]}
        core.set_default_client_config(Config(retries={"total_max_attempts": 1}, **limits))
        return Session(botocore_session=core)

    def _run(self, call: Call, region: str, use: Callable[[Any], Result]) -> Result:
        from botocore import exceptions

        try:
            return use(self.get(call, region))
        except exceptions.ClientError as error:
            code = error.response["Error"]["Code"]
            message = f"{self.name}: {describe(error)}"
            status = int(error.response["ResponseMetadata"]["HTTPStatusCode"])
            failure = MemoryRefused if code in REFUSED else MemoryUnavailable
            transient = status >= 500 or status in BUSY
            raise failure(message, transient=transient, code=code) from None
        except exceptions.ParamValidationError:
            message = f"{self.name}: the id or another value is invalid"
            raise MemoryRefused(message, transient=False) from None
        except (exceptions.BotoCoreError, OSError, ValueError) as error:
            raise MemoryUnavailable(f"{self.name}: {describe(error)}") from None


async def secret_of(secrets: Secrets, ref: SecretRef) -> str:
    """Return the value of a secret. Raises MemoryUnavailable."""
    try:
        return await secrets.get(ref)
    except SecretError as error:
        raise MemoryUnavailable(str(error), transient=False) from None
