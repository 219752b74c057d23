"""The clients of AgentCore Memory: calls in threads, bounded in time, and what errors mean."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, Literal, TypeVar

from ..contract import describe
from .backends import Unavailable
from .causes import cause_of, told
from .errors import Refused
from .options import Options

Result = TypeVar("Result")
Kind = Literal["recall", "record", "control"]
THREADS = {"recall": 32, "record": 8}  # of its own: those that hang must keep nothing else waiting
SERVICE = "AgentCore Memory"
SECONDS = 10  # for what no turn waits for
NEVER = {"ValidationException", "InvalidInputException"}


class Clients:
    """One client for each region and kind of call, made by its first call, for the whole process.

    A turn waits for `recall`, so that has little time; no call is repeated here.
    """

    def __init__(self, options: Options) -> None:
        self._seconds = {"recall": options.recall_timeout_seconds}
        self._lock, self._clients = Lock(), dict[tuple[Kind, str], Any]()
        self._session: Any = None
        self._threads = {kind: ThreadPoolExecutor(most, kind) for kind, most in THREADS.items()}

    def get(self, kind: Kind, region: str) -> Any:
        """The client; the first time that blocks. Raises what botocore raises."""
        with self._lock:
            if (kind, region) not in self._clients:
                self._clients[kind, region] = self._connect(kind, region)
            return self._clients[kind, region]

    def prepare(self, region: str) -> None:
        """Begin to make the clients, so that no turn has to wait for them."""
        self._threads["record"].submit(self.get, "recall", region)
        self._threads["record"].submit(self.get, "record", region)

    async def run(self, kind: Kind, region: str, use: Callable[[Any], Result]) -> Result:
        """What `use` returns of a client. Raises Unavailable, in time, and Refused."""
        loop, threads = asyncio.get_running_loop(), self._threads.get(kind, self._threads["record"])
        try:
            call = loop.run_in_executor(threads, self._call, kind, region, use)
        except RuntimeError:  # the pool is closed
            raise Unavailable("the process ends", is_certain=True) from None
        # A timer on the call itself: one on this task would find in a loop that stood still, as
        # that of `chat` does between its turns, that an answer which is there came too late.
        seconds = self._seconds.get(kind, SECONDS) + 1
        try:
            done, _ = await asyncio.wait({call}, timeout=seconds)
        finally:
            call.cancel()  # what did not begin yet need not begin
        if not done:
            raise Unavailable(told(SERVICE, f"no answer within {seconds} s"))
        return call.result()

    def close(self) -> None:
        """Take no more calls."""
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)

    def _call(self, kind: Kind, region: str, use: Callable[[Any], Result]) -> Result:
        from botocore import exceptions  # type: ignore[import-untyped]

        try:
            return use(self.get(kind, region))
        except exceptions.ClientError as error:
            code = error.response["Error"]["Code"]
            status = int(error.response["ResponseMetadata"]["HTTPStatusCode"])
            failure = Refused if code in NEVER else Unavailable
            why = f"{cause_of(error, code, status) or code} (HTTP {status})"
            raise failure(told(SERVICE, why), is_certain=status < 500) from None
        except exceptions.ParamValidationError:
            raise Refused(told(SERVICE, "its id or another value is not valid")) from None
        except (exceptions.BotoCoreError, OSError, ValueError) as error:
            raise Unavailable(told(SERVICE, cause_of(error) or describe(error))) from None

    def _connect(self, kind: Kind, region: str) -> Any:
        from boto3.session import Session  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]

        self._session = self._session or Session()
        seconds = self._seconds.get(kind, SECONDS)
        limits: Any = {"connect_timeout": seconds, "read_timeout": seconds}
        retries: Any = {"total_max_attempts": 1}
        config = Config(retries=retries, max_pool_connections=THREADS["recall"], **limits)
        service = "bedrock-agentcore" + ("-control" if kind == "control" else "")
        client = self._session.client(service, region_name=region, config=config)
        if kind == "recall":
            name = "provide-client-params.bedrock-agentcore.RetrieveMemoryRecords"
            client.meta.events.register(name, _whole)
        return client


def _whole(params: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A search with a page for all that it asks for, whoever asks; without, it has 20."""
    return {"maxResults": min(100, params["searchCriteria"]["topK"])} | params
