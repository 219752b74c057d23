"""Sessions in Valkey or Redis, including clusters: a hash per session, changed by Lua scripts."""

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any, cast
from urllib.parse import urlsplit

from uuid_utils import uuid7
from valkey import exceptions
from valkey.asyncio import Valkey
from valkey.asyncio.cluster import ValkeyCluster

from ..collections.erasure import Stock, for_each
from ..collections.models import Collection
from ..collections.secrets import SecretError, Secrets
from ..collections.session_backend import ValkeyConfig, url_of
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
    id_after,
    read_limit,
    segment_of,
    session_of,
)
from .settings import StoreSettings
from .valkey_settings import ValkeySettings

log = logging.getLogger(__name__)
CONNECTIONS = 32
# Errors that prove that the server changed nothing.
REFUSALS = (
    exceptions.ResponseError,
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.BusyLoadingError,
)

# Fields of a hash: `latest` and its revision `rev`, `h:<uuid7>` for each checkpoint,
# `f:<name>` for each file, `aside:<uuid7>` for each quarantined snapshot. Without `latest` the
# revision is ''. A key of another type counts as an unreadable snapshot.
REVISION = """
local found = redis.pcall('HEXISTS', KEYS[1], 'latest')
local is_foreign = type(found) == 'table'
if is_foreign and not string.find(found.err, 'WRONGTYPE') then return found end
local revision = found == 1 and (redis.call('HGET', KEYS[1], 'rev') or '-') or ''
if is_foreign then revision = 'foreign' end
"""
EXPIRE = """
if tonumber(ARGV[1]) > 0 then redis.call('EXPIRE', KEYS[1], ARGV[1])
else redis.call('PERSIST', KEYS[1]) end
return 1
"""
# ARGV: field, known revision, maximum size in bytes. Returns a larger snapshot empty, and a 1.
LOAD = f"""{REVISION}
if is_foreign then return ARGV[1] == 'latest' and {{revision, ''}} end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return false end
if revision == ARGV[2] then return {{revision}} end
if redis.call('HSTRLEN', KEYS[1], ARGV[1]) > tonumber(ARGV[3]) then return {{revision, '', 1}} end
return {{revision, redis.call('HGET', KEYS[1], ARGV[1])}}
"""
# ARGV: seconds to live or 0, expected revision, new revision or '' to keep the latest snapshot,
# snapshot, field of the checkpoint or '', number of checkpoints to keep, then the name and the
# content of each new file.
SAVE = f"""{REVISION}
if is_foreign or revision == '' and ARGV[3] == '' then return 0 end
if ARGV[3] ~= '' then
  if revision ~= ARGV[2] then return 0 end
  redis.call('HSET', KEYS[1], 'latest', ARGV[4], 'rev', ARGV[3])
  for i = 7, #ARGV, 2 do redis.call('HSET', KEYS[1], 'f:' .. ARGV[i], ARGV[i + 1]) end
end
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[5], ARGV[4])
  local fields = {{}}
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 2) == 'h:' then table.insert(fields, field) end
  end
  table.sort(fields)
  for i = 1, #fields - tonumber(ARGV[6]) do redis.call('HDEL', KEYS[1], fields[i]) end
end
{EXPIRE}"""
# Deletes each file that no snapshot contains the name of.
TRIM = """
local fields = redis.pcall('HKEYS', KEYS[1])
if fields.err then return 0 end
local files = {}
local snapshots = {}
for _, field in ipairs(fields) do
  if string.sub(field, 1, 2) == 'f:' then table.insert(files, string.sub(field, 3))
  else table.insert(snapshots, redis.call('HGET', KEYS[1], field)) end
end
for _, name in ipairs(files) do
  local is_used = false
  for _, snapshot in ipairs(snapshots) do
    is_used = is_used or string.find(snapshot, name, 1, true)
  end
  if not is_used then redis.call('HDEL', KEYS[1], 'f:' .. name) end
end
return 1
"""
# ARGV: seconds to live or 0, expected revision, field to move the snapshot to. RESTORE reverts
# DUMP.
QUARANTINE = f"""{REVISION}
if revision ~= ARGV[2] then return 0 end
local value
if is_foreign then
  value = redis.call('DUMP', KEYS[1])
  redis.call('DEL', KEYS[1])
else
  value = redis.call('HGET', KEYS[1], 'latest')
  redis.call('HDEL', KEYS[1], 'latest', 'rev')
end
redis.call('HSET', KEYS[1], ARGV[3], value)
{EXPIRE}"""
FIELDS = """
local fields = redis.pcall('HKEYS', KEYS[1])
if fields.err and string.find(fields.err, 'WRONGTYPE') then return {} end
return fields
"""


class ValkeyStore:
    """A DurableStore of the hashes `<key_prefix>:<session_id>:agent:<agent_id>`.

    A session is a single key, so scripts are atomic in a cluster too. Each save restarts the time
    to live, `ttl_seconds`.
    """

    def __init__(
        self, collection: Collection, agent_id: str, settings: StoreSettings, secrets: Secrets
    ) -> None:
        config = cast(ValkeyConfig, collection.backend)
        self._prefix = f"{config.key_prefix}:"
        self._suffix = f":agent:{agent_id}"
        self._seconds_to_live = config.ttl_seconds or 0
        self._settings = settings
        self._max_bytes = read_limit(settings.max_snapshot_bytes)
        self._replicas = cast(ValkeySettings, settings).valkey_wait_replicas
        # WAIT may block for the whole time. Two in a row must fit into a call's time limit.
        self._wait_seconds = settings.store_timeout_seconds / 3
        self._connection = _Connection(config, settings.store_timeout_seconds, secrets)
        self.contact = f"the server of secret {config.endpoint_secret!r}"

    async def load(self, session_id: str, known: Stored | None = None) -> Stored | None:
        found = await self._load(session_id, "latest", known.revision if known else None)
        if found is None:
            return None
        revision, *snapshot = found
        if len(snapshot) > 1:
            return TooLarge(revision.decode(), b"")
        return Stored(revision.decode(), snapshot[0]) if snapshot else known

    async def save(
        self,
        session_id: str,
        snapshot: bytes,
        expected: str | None,
        checkpoint: str | None = None,
        files: Files = NO_FILES,
    ) -> str:
        revision = id_after([expected])
        field = f"h:{checkpoint}" if checkpoint else ""
        values = [revision, snapshot, field, self._settings.checkpoints]
        for name, content in files.items():
            values += [name, content]
        key = self._key(session_id)
        first = (SAVE, 1, key, self._seconds_to_live, expected or "")
        if not await self._write(session_id, "EVAL", *first, *values):
            raise Conflict
        return revision

    async def save_checkpoint(self, session_id: str, snapshot: bytes, checkpoint: str) -> None:
        values = ("", "", snapshot, f"h:{checkpoint}", self._settings.checkpoints)
        try:
            await self._run(SAVE, session_id, self._seconds_to_live, *values)
        except StoreUnavailable as error:
            log.warning("session %s: the checkpoint was not saved: %s", session_id, error)

    async def load_checkpoint(self, session_id: str, checkpoint: str) -> bytes | None:
        found = await self._load(session_id, f"h:{checkpoint}")
        return found[1] if found else None

    async def checkpoints(self, session_id: str) -> list[str]:
        return [field.removeprefix("h:") for field in await self._fields(session_id, "h:")]

    async def load_files(self, session_id: str, names: Sequence[str]) -> Files:
        fields = [f"f:{name}" for name in names]
        key = self._key(session_id)
        contents = await self._connection.run(lambda client: client.hmget(key, fields))
        found = zip(names, contents, strict=True)
        return {name: content for name, content in found if content is not None}

    async def trim_files(self, session_id: str, dropped: Sequence[str] = ()) -> None:
        try:
            await self._run(TRIM, session_id)
        except StoreUnavailable as error:
            log.warning("session %s: old files were not deleted: %s", session_id, error)

    async def quarantine(self, session_id: str, revision: str | None) -> str:
        field = f"aside:{uuid7()}"
        if not await self._run(
            QUARANTINE, session_id, self._seconds_to_live, revision or "?", field
        ):
            raise Conflict
        return f"{self._key(session_id)} {field}"

    async def quarantined(self, session_id: str) -> list[str]:
        fields = await self._fields(session_id, "aside:")
        return [f"{self._key(session_id)} {field}" for field in fields]

    async def sessions(self) -> list[str]:
        keys = await self._scan(self._prefix, self._suffix)
        segments = [key.removeprefix(self._prefix).removesuffix(self._suffix) for key in keys]
        return sorted(id for segment in segments if (id := session_of(segment)))

    async def _scan(self, *parts: str) -> set[str]:
        """Return the keys with these parts, and any text between them."""
        pattern = "*".join(re.sub(r"([][*?\\])", r"\\\1", part) for part in parts)

        async def scan(client: Any) -> set[str]:
            keys = set[str]()
            found = client.scan_iter(match=pattern, count=1000)
            while True:
                async with time_limit(self._settings.store_timeout_seconds):  # for each call
                    if (key := await anext(found, None)) is None:
                        return keys
                keys.add(key.decode("utf-8", "replace"))

        found: set[str] = await self._connection.run(scan, is_bounded=False)
        return found

    async def end(self, session_id: str) -> None:
        await self._write(session_id, "UNLINK", self._key(session_id))

    def leftovers(self) -> list[Stock]:
        """Return the keys of `keys_beside`, such as the events of background turns."""

        async def pages() -> AsyncIterator[list[str]]:
            # The key of a session has no brace: see `segment_of`.
            yield sorted(await self._scan(f"{self._prefix}{{", "}:", self._suffix))

        async def unlink(key: str) -> None:
            await self._connection.run(lambda client: client.unlink(key))

        async def delete(keys: list[str]) -> int:
            return await for_each(keys, unlink)

        return [Stock("other keys of sessions", self.contact, pages, delete, (StoreUnavailable,))]

    async def warnings(self) -> list[StoreWarning]:
        try:
            info = await self._connection.run(_read_info)
        except StoreUnavailable as error:
            message = f"The check for possible data loss failed: {error}."
            return [("AML-W161", message)]
        messages = list[str]()
        policy = str(info.get("maxmemory_policy"))
        evicts = policy.startswith(
            ("allkeys-", "volatile-") if self._seconds_to_live else "allkeys-"
        )
        if info.get("maxmemory") and evicts:
            problem = f"maxmemory-policy is {policy}: a full server evicts sessions"
            messages.append(f"{problem}. Set noeviction.")
        if info.get("aof_enabled") == 0 and info.get("save") == "":
            messages.append(
                "The server saves nothing to disk: a restart loses all sessions. Enable AOF or RDB."
            )
        count = info.get("connected_slaves", 0)
        is_primary = info.get("role") == "master"
        # INFO has this field only if min-replicas-to-write is set.
        if is_primary and count and "min_slaves_good_slaves" not in info:
            problem = "The server has replicas and min-replicas-to-write is 0"
            messages.append(
                f"{problem}: a failover discards turns of an isolated primary. Set it to 1."
            )
        if is_primary and count < self._replicas:
            problem = f"VALKEY_WAIT_REPLICAS is {self._replicas}, but the server has only {count}"
            messages.append(
                f"{problem}: each turn waits {self._wait_seconds:.1f} s until the timeout."
            )
        return [("AML-W161", message) for message in messages]

    async def close(self) -> None:
        await self._connection.close()

    def _key(self, session_id: str) -> str:
        return f"{self._prefix}{segment_of(session_id)}{self._suffix}"

    async def _load(self, session_id: str, field: str, known: str | None = None) -> Any:
        return await self._run(LOAD, session_id, field, known or "?", self._max_bytes)

    def keys_beside(self, session_id: str, *names: str) -> list[str]:
        """Return keys for more data of a session; a cluster keeps them on one node."""
        # A cluster chooses the node by the text between the braces.
        tag = segment_of(session_id)
        return [f"{self._prefix}{{{tag}}}:{name}{self._suffix}" for name in names]

    async def evaluate(self, script: str, keys: Sequence[str], *values: Any) -> Any:
        """Return the result of a script on keys of one node. Raises StoreUnavailable."""
        return await self._connection.run(
            lambda client: client.eval(script, len(keys), *keys, *values)
        )

    async def _run(self, script: str, session_id: str, *values: Any) -> Any:
        return await self.evaluate(script, [self._key(session_id)], *values)

    async def _write(self, session_id: str, *command: Any) -> Any:
        """Send a command that changes a session, wait for replicas, and return its reply."""
        if not self._replicas:
            return await self._connection.run(lambda client: client.execute_command(*command))
        wait = ("WAIT", self._replicas, round(1000 * self._wait_seconds))

        async def write(client: Any) -> tuple[Any, Any]:
            node: dict[str, Any] = {}
            if isinstance(client, ValkeyCluster):
                await client.initialize()  # a new client has no list of nodes yet
                node["target_nodes"] = client.get_node_from_key(self._key(session_id))
            # WAIT covers the writes of its own connection, so send both on the same connection.
            pipeline = client.pipeline(transaction=False)
            pipeline.execute_command(*command, **node)
            pipeline.execute_command(*wait, **node)
            reply, confirmed = await pipeline.execute(raise_on_error=False)
            if isinstance(reply, Exception):
                raise reply
            return reply, confirmed

        reply, confirmed = await self._connection.run(write)
        count = 0 if isinstance(confirmed, Exception) else confirmed
        if reply and count < self._replicas:
            problem = f"only {count} of {self._replicas} replicas confirmed it"
            log.warning("session %s: changed, but %s: a failover may undo it", session_id, problem)
        return reply

    async def _fields(self, session_id: str, start: str) -> list[str]:
        keys = await self._run(FIELDS, session_id)
        fields = (key.decode("utf-8", "replace") for key in keys)
        return sorted(field for field in fields if field.startswith(start))


async def _read_info(client: Any) -> dict[str, Any]:
    """Return the settings of a server or node that affect data loss."""
    info: dict[str, Any] = await client.info("memory")
    info |= await client.info("persistence")
    info |= await client.info("replication")
    with suppress(exceptions.ResponseError):  # many cloud services forbid CONFIG
        info |= await client.config_get("save")
    return info


def _is_of_replica(error: Exception) -> bool:
    # Redis 6 wraps the error of a script in this text.
    return isinstance(error, exceptions.ReadOnlyError) or "-READONLY " in str(error)


class _Connection:
    """A client of the server or cluster whose address is a secret; a new secret, a new client."""

    def __init__(self, config: ValkeyConfig, seconds: int, secrets: Secrets) -> None:
        (self._ref,) = config.secret_refs()
        self._port = config.port
        self._seconds = seconds
        self._secrets = secrets
        self._lock = asyncio.Lock()
        # Connecting takes several round trips: reusing few connections is faster than opening many.
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._client: Any = None
        self._secret = ""
        self._closing = set[asyncio.Task[None]]()
        self._name = f"valkey of secret {self._ref.reference!r}"
        self._was_replica = False

    async def run(self, use: Callable[[Any], Awaitable[Any]], is_bounded: bool = True) -> Any:
        """Return the result of `use` within the time limit. Raises StoreUnavailable.

        After a failover the server may be a replica; after a rotation it rejects the old password.
        In both cases, reread the secret and retry once with a new connection.
        """
        client: Any = None
        try:
            limit = time_limit(self._seconds) if is_bounded else nullcontext()
            async with limit, self._slots:
                for is_last in (False, True):
                    client = None
                    try:
                        client = await self._connected()
                        return await use(client)
                    except REFUSALS as error:
                        is_replica = _is_of_replica(error)
                        if not is_replica and not isinstance(error, exceptions.AuthenticationError):
                            raise
                        self._was_replica |= is_replica
                        self._retire(client, self._seconds)
                        if is_last:
                            raise
                        if not is_replica:
                            await self._secrets.get(self._ref, was_refused=True)
        except SecretError as error:
            raise StoreUnavailable(str(error), indeterminate=False) from None
        except REFUSALS as error:
            code = re.match("[A-Z]{3,}(?= )", str(error))  # for example WRONGPASS
            reason = describe(error) + (f" {code[0]}" if code else "")
            is_retried = isinstance(client, ValkeyCluster)  # its first attempt may be saved
            raise StoreUnavailable(f"{self._name}: {reason}", indeterminate=is_retried) from None
        except (exceptions.ValkeyError, exceptions.ValkeyClusterException, OSError) as error:
            is_retried = isinstance(client, ValkeyCluster)  # its first attempt may be saved
            if is_retried:  # its list of nodes may be out of date
                self._retire(client, self._seconds)
            cause = error.__cause__ or error.__context__
            is_refused = isinstance(cause, ConnectionRefusedError | socket.gaierror)
            reason = describe(cause if is_refused and cause else error)
            if isinstance(error, TimeoutError | exceptions.TimeoutError):
                reason = f"no answer within {self._seconds} s"
            is_sent = client is not None and (is_retried or not is_refused)
            raise StoreUnavailable(f"{self._name}: {reason}", indeterminate=is_sent) from None

    async def close(self) -> None:
        """Disconnect."""
        self._retire(self._client, 0)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _connected(self) -> Any:
        secret = await self._secrets.get(self._ref)
        async with self._lock:
            if self._client is None or secret != self._secret:
                self._retire(self._client, self._seconds)
                self._client = await self._connect(secret)
                self._secret = secret
            return self._client

    async def _connect(self, secret: str) -> Any:
        url = url_of(secret) or ""
        self._name = f"valkey of secret {self._ref.reference!r}"
        if url == secret:  # otherwise the secret may be a password, by mistake
            parts = urlsplit(url)
            host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
            self._name = f"valkey at {host}:{parts.port or self._port}"
        try:
            client = Valkey.from_url(url, port=self._port)  # `run` limits the time
        except ValueError:
            message = f"secret {self._ref.reference!r} has an invalid option"
            raise StoreUnavailable(message, indeterminate=False) from None
        try:
            async with time_limit(self._seconds):
                info: dict[str, Any] = await client.info()
        except exceptions.NoPermissionError:
            info = {}
        except BaseException:
            await client.aclose()
            raise
        if not info.get("cluster_enabled"):
            if (
                self._was_replica and info.get("role") == "slave"
            ):  # its turns would fail at the commit
                await client.aclose()
                raise StoreUnavailable(f"{self._name}: a read-only replica", indeterminate=False)
            return client
        await client.aclose()
        limits: Any = {"socket_timeout": None, "cluster_error_retry_attempts": 1}
        return ValkeyCluster.from_url(url, port=self._port, **limits)

    def _retire(self, client: Any, seconds: float) -> None:
        """Close a client after `seconds`, so that its running calls can end."""

        async def close() -> None:
            await asyncio.sleep(seconds)
            await client.aclose()

        if client is not None and client is self._client:
            self._client = None
            self._closing.add(task := asyncio.create_task(close()))
            task.add_done_callback(self._closing.discard)
