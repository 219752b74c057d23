"""The connections to one Valkey, Redis or cluster: calls bounded in time, secrets rotated."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from valkey import exceptions
from valkey.asyncio import Valkey
from valkey.asyncio.cluster import ValkeyCluster

from ..contract import describe
from .backends import Unavailable
from .causes import UNSENT, cause_of, told
from .secrets import Secrets
from .valkey_address import read_address

# By these the server says that it did nothing.
REFUSALS = (
    exceptions.ResponseError,
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.BusyLoadingError,
)


class ValkeyClient:
    """A client of what a secret names; it is made by the first call, in the loop that uses it."""

    def __init__(self, reference: str, port: int, seconds: int, secrets: Secrets) -> None:
        self._reference, self._port, self._seconds = reference, port, seconds
        self._secrets, self._lock = secrets, asyncio.Lock()
        self._client: Any = None
        self._url, self._closing = "", set[asyncio.Task[None]]()
        self._name = f"valkey of secret {reference!r}"

    async def run(self, use: Callable[[Any], Awaitable[Any]]) -> Any:
        """What `use` returns of the client. Raises Unavailable, at the latest after `seconds`."""
        client = None
        try:
            async with asyncio.timeout(self._seconds):
                client = await self._open()
                return await use(client)
        except REFUSALS as error:
            found = re.match("[A-Z]{3,}(?= )", str(error))
            code = found[0] if found else "ERR"
            why = cause_of(error, code) or code
            raise Unavailable(told(self._name, why), is_certain=True) from None
        except (exceptions.ValkeyError, exceptions.ValkeyClusterException, OSError) as error:
            if isinstance(client, ValkeyCluster):
                self._retire(client, self._seconds)  # it may have forgotten all of its nodes
            why = cause_of(error) or describe(error)
            if isinstance(error, (TimeoutError, exceptions.TimeoutError)):
                why = f"no answer within {self._seconds} s"
            raise Unavailable(told(self._name, why), is_certain=why in UNSENT) from None

    async def keys(self, pattern: str) -> set[bytes]:
        """All keys like the pattern. Each call of the scan is bounded in time, not all of it."""
        found = set[bytes]()
        for node in await self.run(_primaries):
            where = {"target_nodes": node} if node else {}
            cursor = 0
            while True:
                page = partial(_scan, cursor=cursor, match=pattern, count=1000, **where)
                cursor, keys = await self.run(page)
                found.update(keys)
                if not cursor:
                    break
        return found

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

    async def _connect(self, secret: str) -> Any:
        url, self._name = read_address(secret, self._reference, self._port)
        limits: Any = {"socket_timeout": self._seconds, "socket_connect_timeout": self._seconds}
        try:
            client = Valkey.from_url(url, port=self._port, **limits)
        except ValueError:  # by an option in it
            what = f"secret {self._reference!r} has an option that is not valid"
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


async def _primaries(client: Any) -> list[Any]:
    """The nodes that have keys, or None for the only one."""
    if not isinstance(client, ValkeyCluster):
        return [None]
    await client.initialize()
    return client.get_primaries()


async def _scan(client: Any, **what: Any) -> tuple[int, list[bytes]]:
    cursor, keys = await client.scan(**what)
    return (cursor if isinstance(cursor, int) else max(cursor.values())), keys
