"""The connections to one Valkey, Redis or cluster: calls bounded in time, secrets rotated."""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from valkey import exceptions
from valkey.asyncio import Valkey
from valkey.asyncio.cluster import ValkeyCluster

from ..contract import describe
from .backends import Unavailable
from .secrets import Secrets

# By these the server says that it did nothing.
REFUSALS = (
    exceptions.ResponseError,
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.BusyLoadingError,
)
NOT_REACHED = (ConnectionRefusedError, socket.gaierror)


class ValkeyClient:
    """A client of what a secret names; it is made by the first call, in the loop that uses it."""

    def __init__(self, reference: str, port: int, seconds: int, secrets: Secrets) -> None:
        self._reference, self._port, self._seconds = reference, port, seconds
        self._secrets, self._lock = secrets, asyncio.Lock()
        self._client: Any = None
        self._url, self._closing = "", set[asyncio.Task[None]]()

    async def run(self, use: Callable[[Any], Awaitable[Any]]) -> Any:
        """What `use` returns of the client. Raises Unavailable, at the latest after `seconds`."""
        client = None
        try:
            async with asyncio.timeout(self._seconds):
                client = await self._open()
                return await use(client)
        except REFUSALS as error:
            code = re.match(r"[A-Z]{3,}(?= )|", str(error))
            what = f"valkey: {type(error).__name__} {code and code[0]}".strip()
            raise Unavailable(what, is_certain=True) from None
        except (exceptions.ValkeyError, exceptions.ValkeyClusterException, OSError) as error:
            if isinstance(client, ValkeyCluster):
                self._retire(client, self._seconds)  # it may have forgotten all of its nodes
            if isinstance(error, (TimeoutError, exceptions.TimeoutError)):
                raise Unavailable(f"valkey: no answer within {self._seconds} s") from None
            first = error.__context__
            is_certain = isinstance(first, NOT_REACHED)
            why = describe(first if first and is_certain else error)
            raise Unavailable(f"valkey: {why}", is_certain=is_certain) from None

    async def close(self) -> None:
        """Close the connections."""
        self._retire(self._client, 0)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _open(self) -> Any:
        url = await self._secrets.get(self._reference)
        async with self._lock:
            if url != self._url or self._client is None:
                self._retire(self._client, self._seconds)
                self._client, self._url = await self._connect(url), url
            return self._client

    async def _connect(self, url: str) -> Any:
        url = url if "://" in url else f"valkey://{url}"
        limits: Any = {"socket_timeout": self._seconds, "socket_connect_timeout": self._seconds}
        try:
            if not re.match("(valkey|redis)s?://", url):
                raise ValueError
            client = Valkey.from_url(url, port=self._port, **limits)
        except ValueError:
            what = f"secret {self._reference!r} is no address such as valkeys://host:6379"
            raise Unavailable(what, is_certain=True) from None
        try:
            is_cluster = (await client.info("cluster")).get("cluster_enabled")
        except exceptions.NoPermissionError:
            is_cluster = False
        except BaseException:
            await client.aclose()
            raise
        if not is_cluster:
            return client
        await client.aclose()
        limits["cluster_error_retry_attempts"] = 1
        return ValkeyCluster.from_url(url, port=self._port, **limits)

    def _retire(self, client: Any, seconds: float) -> None:
        """Close a client when the calls that may still use it are over."""

        async def close() -> None:
            await asyncio.sleep(seconds)
            await client.aclose()

        if client is not None and client is self._client:
            self._client = None
            self._closing.add(task := asyncio.create_task(close()))
            task.add_done_callback(self._closing.discard)
