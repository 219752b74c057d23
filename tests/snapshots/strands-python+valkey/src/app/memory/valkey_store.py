"""Sessions in Valkey or Redis: one hash for each, changed by scripts that compare first."""

import json
import re
from typing import Any, cast

from uuid_utils import uuid7

from ..contract import SESSION_ID
from . import models
from .backends import Conflict, Stored
from .options import Options
from .secrets import Secrets
from .valkey_client import ValkeyClient
from .wire import now

# Fields of a hash: `latest` and its revision `rev`, `manifest`, `h:<uuid7>` for each checkpoint,
# `aside:<uuid7>` for what was set aside. '' is the revision of a session without `latest`.
REVISION = """
local is_there = redis.call('HEXISTS', KEYS[1], 'latest') == 1
local revision = is_there and (redis.call('HGET', KEYS[1], 'rev') or '-') or ''
"""
LIVE = """
if tonumber(ARGV[1]) > 0 then redis.call('EXPIRE', KEYS[1], ARGV[1])
else redis.call('PERSIST', KEYS[1]) end
return 1
"""
# ARGV: field, known revision, most bytes. What is larger is handed on empty, which is no snapshot.
LOAD = f"""{REVISION}
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return false end
if revision == ARGV[2] then return {{revision}} end
if redis.call('HSTRLEN', KEYS[1], ARGV[1]) > tonumber(ARGV[3]) then return {{revision, ''}} end
return {{revision, redis.call('HGET', KEYS[1], ARGV[1])}}
"""
# ARGV: seconds to live or 0, expected revision, new revision, snapshot, manifest, field of the
# checkpoint or '', how many checkpoints to keep.
SAVE = f"""{REVISION}
if revision ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'latest', ARGV[4], 'rev', ARGV[3], 'manifest', ARGV[5])
if ARGV[6] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[6], ARGV[4])
  local kept = {{}}
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 2) == 'h:' then table.insert(kept, field) end
  end
  table.sort(kept)
  for i = 1, #kept - tonumber(ARGV[7]) do redis.call('HDEL', KEYS[1], kept[i]) end
end
{LIVE}"""
# ARGV: seconds to live or 0, expected revision, field to move it to.
SET_ASIDE = f"""{REVISION}
if revision ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[3], redis.call('HGET', KEYS[1], 'latest'))
redis.call('HDEL', KEYS[1], 'latest', 'rev')
{LIVE}"""


class ValkeyStore:
    """The hashes `<key_prefix>:<session_id>:agent:<agent_id>`."""

    def __init__(
        self, collection: models.Collection, agent_id: str, options: Options, secrets: Secrets
    ) -> None:
        declared = cast(models.Valkey, collection.backend)
        self._prefix, self._suffix = f"{declared.key_prefix}:", f":agent:{agent_id}"
        self._seconds_to_live, self._options = declared.ttl_seconds or 0, options
        reference, seconds = declared.endpoint_secret or "", options.store_timeout_seconds
        self._client = ValkeyClient(reference, declared.port, seconds, secrets)
        self.contact = f"the server of secret {reference!r}"

    async def load(
        self, session_id: str, known: str | None = None, checkpoint: str | None = None
    ) -> Stored | None:
        """What is stored last, or in a checkpoint; None when there is nothing."""
        field = f"h:{checkpoint}" if checkpoint else "latest"
        most = self._options.max_snapshot_bytes
        found = await self._run(LOAD, session_id, field, known or "?", most)
        return Stored(found[0].decode(), found[1] if found[1:] else None) if found else None

    async def save(
        self, session_id: str, snapshot: bytes, expected: str | None, checkpoint: str | None = None
    ) -> str:
        """Replace what has the expected revision (None: nothing yet), and return the new one."""
        revision = str(uuid7())
        manifest = json.dumps({"schema_version": "1.0", "updated_at": now()})
        field = f"h:{checkpoint}" if checkpoint else ""
        values = (revision, snapshot, manifest, field, self._options.checkpoints)
        live = self._seconds_to_live
        if not await self._run(SAVE, session_id, live, expected or "", *values):
            raise Conflict
        return revision

    async def keep(self, session_id: str, snapshot: bytes, checkpoint: str) -> None:
        """Do nothing: `save` did both at once."""

    async def set_aside(self, session_id: str, revision: str | None) -> str:
        """Put what is stored last beside it, where nothing overwrites it; its name there."""
        field, live = f"aside:{uuid7()}", self._seconds_to_live
        if not await self._run(SET_ASIDE, session_id, live, revision or "?", field):
            raise Conflict
        return f"{self._key(session_id)} {field}"

    async def checkpoints(self, session_id: str) -> list[str]:
        """The ids of the checkpoints, oldest first."""
        return [field.removeprefix("h:") for field in await self._fields(session_id, "h:")]

    async def asides(self, session_id: str) -> list[str]:
        """The names of what was set aside."""
        fields = await self._fields(session_id, "aside:")
        return [f"{self._key(session_id)} {field}" for field in fields]

    async def end(self, session_id: str) -> None:
        """Delete all of the session, known or not."""
        await self._client.run(lambda it: it.execute_command("UNLINK", self._key(session_id)))

    async def sessions(self) -> list[str]:
        """The ids of all sessions."""
        prefix, suffix = (re.sub(r"([][*?\\])", r"\\\1", it) for it in (self._prefix, self._suffix))
        keys = await self._client.keys(f"{prefix}*{suffix}")
        texts = [key.decode("utf-8", "replace") for key in keys]
        ids = [it.removeprefix(self._prefix).removesuffix(self._suffix) for it in texts]
        return sorted(it for it in ids if re.fullmatch(SESSION_ID, it))

    async def close(self) -> None:
        """Close what is open."""
        await self._client.close()

    def _key(self, session_id: str) -> str:
        return f"{self._prefix}{session_id}{self._suffix}"

    async def _run(self, script: str, session_id: str, *values: Any) -> Any:
        key = self._key(session_id)
        return await self._client.run(lambda it: it.eval(script, 1, key, *values))

    async def _fields(self, session_id: str, start: str) -> list[str]:
        fields = await self._client.run(lambda it: it.hkeys(self._key(session_id)))
        return sorted(f.decode("utf-8", "replace") for f in fields if f.startswith(start.encode()))
