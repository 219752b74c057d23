"""Recordings that all replicas share, as a capability: the events are in the session store."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import cached_property
from typing import Any, cast

from ..capability import Capability, Runtime
from ..contract import AgentError, Chunk
from ..modules import LoadModules
from ..runtime import Runtime as RunningAgent
from ..store.base import StoreUnavailable
from ..store.capability import Store
from ..store.valkey import ValkeyStore
from .capability import Background
from .chunks import read_chunks
from .failures import Format, format_error
from .readers import find
from .recording import Recording
from .recordings import BackgroundTurn, Key
from .settings import BackgroundSettings

log = logging.getLogger(__name__)
LEASE_SECONDS = 4  # after which a replica that does not renew its lease has lost the turn
RENEWAL_SECONDS = 1.5
LOST_SECONDS = 3  # without a lease: after a pause of Valkey, the replica first renews it
BATCH_SECONDS = 0.05  # between two writes of events
BATCH_BYTES = 262_144
POLL_SECONDS = (0.1, 0.25)  # between two reads: after new events, and otherwise
DELIVERY_SECONDS = 2  # from the write of an event until other replicas have read it
PAGE = 1000  # events of a read
IDLE_SECONDS = 2  # without readers, until reading stops
RETRY_SECONDS = 0.5
STOP_SECONDS = 600
MIN_SECONDS = 60  # to live, while a turn runs
CLOSE_SECONDS = 4  # for the last events, when the process ends

# Keys: `turns`, a hash of the newest turn of each actor; `events`, a stream with the id `<n>-0` for
# the event n, and `<n>-1` after the last; `lease`, which exists while a replica runs the turn;
# `stop`, which exists if a client stopped it; and `running`, a hash: the actors of running turns.
LAST = """
local last = '0-0'
local info = redis.pcall('XINFO', 'STREAM', KEYS[2])
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then last = info[i + 1] end
end
local number = tonumber(string.match(last, '^%d+'))
"""
# KEYS: turns, events, lease, stop, running. ARGV: actor, turn and format, 1 if the turn is new,
# milliseconds to live, milliseconds of the lease or 0 after the end, number of events to keep,
# number of events already written, 1 if these were dropped, then the next events. Returns the
# number of the last event, and whether to stop.
PUBLISH = f"""{LAST}
local newest = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[3] == '1' or not newest or newest == ARGV[2] then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
local stop = redis.call('EXISTS', KEYS[4])
if string.sub(last, -2) == '-1' and last ~= '0-1' then return {{-1, stop}} end
if number < tonumber(ARGV[7]) and ARGV[8] == '0' then return {{number, stop}} end
for i = 9, #ARGV do
  local next = tonumber(ARGV[7]) + i - 8
  if next > number then redis.call('XADD', KEYS[2], string.format('%.0f-0', next), 'e', ARGV[i]) end
end
number = math.max(number, tonumber(ARGV[7]) + #ARGV - 8)
redis.call('XTRIM', KEYS[2], 'MAXLEN', ARGV[6])
if ARGV[5] == '0' then
  redis.call('XADD', KEYS[2], string.format('%.0f-1', number), 'end', '1')
  redis.call('DEL', KEYS[3], KEYS[4])
  redis.call('HDEL', KEYS[5], ARGV[2])
else
  redis.call('SET', KEYS[3], '1', 'PX', ARGV[5])
  redis.call('HSET', KEYS[5], ARGV[2], ARGV[1])
  redis.call('PEXPIRE', KEYS[5], ARGV[4])
end
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {{number, stop}}
"""
# KEYS: turns. ARGV: actor. Returns the actor's newest turn, and the number of actors with turns.
FIND = "return {redis.call('HGET', KEYS[1], ARGV[1]), redis.call('HLEN', KEYS[1])}"
# KEYS: events, lease. ARGV: position, page. Returns the events after the position.
READ = """
local events = redis.call('XRANGE', KEYS[1], ARGV[1] .. '-1', '+', 'COUNT', ARGV[2])
return {events, redis.call('EXISTS', KEYS[2])}
"""
# KEYS: lease, events. ARGV: the event of a lost turn.
LOSE = f"""{LAST}
if redis.call('EXISTS', KEYS[1]) == 1 or string.sub(last, -2) == '-1' then return 0 end
if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
redis.call('XADD', KEYS[2], string.format('%.0f-1', number), 'lost', ARGV[1])
return 1
"""
# KEYS: running. ARGV: actor. Returns the ids of the actor's turns, whose replicas may have ended.
RUNNING = """
local turns = {}
local actors = redis.call('HGETALL', KEYS[1])
for i = 1, #actors, 2 do
  if actors[i + 1] == ARGV[1] then table.insert(turns, string.match(actors[i], '^%S+')) end
end
return turns
"""
# KEYS: the lease and the stop of each turn. ARGV: milliseconds to live. Returns how many run.
STOP = """
local count = 0
for i = 1, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    redis.call('SET', KEYS[i + 1], '1', 'PX', ARGV[1])
    count = count + 1
  end
end
return count
"""


class SharedRecordings(Capability):
    """Keeps the events of background turns in Valkey, if it is configured."""

    settings: BackgroundSettings
    _runtime: RunningAgent

    def __init__(
        self, settings: BackgroundSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self._before = before
        self._recordings = Background.find(before).recordings
        self._copies = dict[str, _Copy]()  # of the turns of other replicas, by turn
        self._writers = set[asyncio.Task[None]]()
        self._readers = set[asyncio.Task[None]]()
        # The session id and the recording of each writer.
        self._written = dict[asyncio.Task[None], tuple[str, Recording]]()

    @cached_property
    def store(self) -> ValkeyStore | None:
        """A separate connection to the store of the sessions."""
        store = Store.find(self._before)
        connected = store.connect(store.collection) if store.durable and store.collection else None
        return connected if isinstance(connected, ValkeyStore) else None

    async def open(self, runtime: Runtime) -> None:
        if self.store:
            self._runtime = cast(RunningAgent, runtime)
            self._recordings.shared = self

    async def follow(self, session_id: str, actor: str | None) -> AsyncIterator[Chunk] | None:
        if not self.store:
            return None
        recording = await find(self._runtime, self._recordings, (session_id, actor))
        return None if recording is None or recording.is_ended else read_chunks(recording)

    async def close(self) -> None:
        for reader in self._readers:
            reader.cancel()
        if self._writers:
            await asyncio.wait(self._writers, timeout=CLOSE_SECONDS)
        for writer in self._writers:
            writer.cancel()
        if self.store:
            await self.store.close()

    def publish(self, key: Key, turn: BackgroundTurn) -> None:
        turn.recording.delivered = 0
        writer = self._run(self._write(key, turn), self._writers)
        self._written[writer] = key[0], turn.recording
        writer.add_done_callback(self._written.pop)

    async def newest(self, key: Key) -> Recording | None:
        found = await self._find(key)
        local = self._recordings.find(key)
        if found is None:
            is_unwritten = any(recording is local for _, recording in self._written.values())
            return local if is_unwritten else None
        turn_id, format = found
        if local and local.turn_id == turn_id:
            return local
        if self._runtime.turns.is_draining:
            raise AgentError("draining")
        copy = self._copies.get(turn_id)
        if copy is None:
            copy = _Copy(Recording(turn_id, format, self.settings.max_event_bytes))
            self._copies[turn_id] = copy
            self._run(self._read(key[0], copy), self._readers)
        copy.used_at = time.monotonic()
        await copy.loaded.wait()
        if copy.failure:
            raise copy.failure
        return copy.recording

    async def stop(self, key: Key) -> bool:
        session_id, actor = key
        turns = await self._evaluate(RUNNING, self._keys(session_id, "running"), actor or "")
        names = [f"{name}:{turn.decode()}" for turn in turns for name in ("lease", "stop")]
        keys = self._keys(session_id, *names)
        return bool(keys and await self._evaluate(STOP, keys, STOP_SECONDS * 1000))

    def forget(self, session_id: str) -> None:
        self._run(self._forget(session_id), self._writers)

    def _run(
        self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def _find(self, key: Key) -> tuple[str, Format] | None:
        session_id, actor = key
        newest, count = await self._evaluate(FIND, self._keys(session_id, "turns"), actor or "")
        if newest:
            turn_id, format = newest.decode().split(" ")
            return turn_id, cast(Format, format)
        if count:
            raise AgentError("session_forbidden")
        return None

    async def _write(self, key: Key, turn: BackgroundTurn) -> None:
        """Write the events of a turn and renew its lease, until it has ended."""
        session_id, actor = key
        recording = turn.recording
        turn_id = recording.turn_id
        names = ("turns", f"events:{turn_id}", f"lease:{turn_id}", f"stop:{turn_id}", "running")
        keys = self._keys(session_id, *names)
        head = f"{turn_id} {recording.format}"
        written = 0
        is_new = True
        failed_at = 0.0

        def deliver(number: int) -> None:
            recording.delivered = number

        while True:
            written = max(written, recording.first - 1)
            events = recording.read(written, BATCH_BYTES)
            is_ended = recording.is_ended and written + len(events) == recording.last
            seconds = self.settings.event_seconds
            seconds = seconds if is_ended else max(seconds, MIN_SECONDS)
            lease = 0 if is_ended else LEASE_SECONDS * 1000
            kept = written + len(events) - recording.first + 1
            is_dropped = written == recording.first - 1
            values = [actor or "", head, int(is_new), seconds * 1000, lease, kept, written]
            values.append(int(is_dropped))
            try:
                last, is_stopped = await self._store.evaluate(PUBLISH, keys, *values, *events)
            except StoreUnavailable as error:
                if not failed_at:
                    failed_at = time.monotonic()
                    message = "session %s: the events of a turn wait for the store: %s"
                    log.warning(message, session_id, error)
                if recording.is_ended and time.monotonic() - failed_at > seconds:
                    return
                await asyncio.sleep(RETRY_SECONDS)
                continue
            turn.published.set()
            is_new = False
            failed_at = 0
            if is_stopped:
                turn.stopping.set()
            if last < 0 or (is_ended and last >= written + len(events)):
                return
            written = last
            asyncio.get_running_loop().call_later(DELIVERY_SECONDS, deliver, written)
            if recording.last == written and not recording.is_ended:
                await recording.wait(RENEWAL_SECONDS)
            await asyncio.sleep(BATCH_SECONDS)

    async def _read(self, session_id: str, copy: "_Copy") -> None:
        """Copy the events of another replica's turn while it has readers."""
        recording = copy.recording
        keys = self._keys(session_id, f"events:{recording.turn_id}", f"lease:{recording.turn_id}")
        leased_at = time.monotonic()
        try:
            while not recording.is_ended and time.monotonic() - copy.used_at < IDLE_SECONDS:
                try:
                    events, has_lease = await self._evaluate(READ, keys, recording.last, PAGE)
                except AgentError as error:
                    if not copy.loaded.is_set():
                        copy.failure = error
                        return
                    events, has_lease = [], True
                copy.add(events)
                now = time.monotonic()
                if recording.readers or not copy.loaded.is_set():
                    copy.used_at = now
                if has_lease or events:
                    leased_at = now
                if len(events) == PAGE:
                    continue
                copy.loaded.set()
                if self._runtime.turns.is_draining:
                    return
                if now - leased_at > LOST_SECONDS:
                    await self._lose(keys, copy)
                fast, slow = POLL_SECONDS
                await asyncio.sleep(fast if events else slow)
        finally:
            del self._copies[recording.turn_id]
            copy.loaded.set()
            if not recording.is_ended:
                recording.close()

    async def _lose(self, keys: Sequence[str], copy: "_Copy") -> None:
        """End a turn whose replica has ended, once for the readers of all replicas."""
        events_key, lease_key = keys
        event = format_error(copy.recording.format, AgentError("turn_lost"))
        try:
            result = await self._evaluate(LOSE, [lease_key, events_key], event)
        except AgentError:
            return
        if result < 0:  # the events have expired
            copy.recording.lose(event)

    async def _forget(self, session_id: str) -> None:
        """Delete the events of a session, after the last writes of its ended turns."""
        written = self._written.items()
        if ending := [it for it, (id, what) in written if id == session_id and what.is_ended]:
            await asyncio.wait(ending)
        keys = self._keys(session_id, "turns")
        try:
            turns = await self._evaluate("return redis.call('HVALS', KEYS[1])", keys)
            names = [f"events:{turn.decode().split(' ')[0]}" for turn in turns]
            keys += self._keys(session_id, *names)
            await self._evaluate("return redis.call('UNLINK', unpack(KEYS))", keys)
        except AgentError as error:
            log.warning("session %s: its events were not deleted: %s", session_id, error.detail)

    @property
    def _store(self) -> ValkeyStore:
        assert self.store
        return self.store

    def _keys(self, session_id: str, *names: str) -> list[str]:
        return self._store.keys_beside(session_id, *names)

    async def _evaluate(self, script: str, keys: Sequence[str], *values: Any) -> Any:
        """Return the result of a script. Raises AgentError `store_unavailable`."""
        try:
            return await self._store.evaluate(script, keys, *values)
        except StoreUnavailable as error:
            raise AgentError("store_unavailable", detail=str(error)) from None


class _Copy:
    """The recording of a turn of another replica."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.used_at = time.monotonic()  # when it last had readers, or one looked for it
        self.loaded = asyncio.Event()  # the recording has the events so far
        self.failure: AgentError | None = None

    def add(self, events: list[Any]) -> None:
        """Add the entries of a stream."""
        recording = self.recording
        for id, (name, value) in events:
            number, _, kind = id.decode().partition("-")
            if kind == "1":
                recording.lose(value) if name == b"lost" else recording.end()
                return
            if int(number) > recording.last + 1:
                recording.skip_to(int(number))
            recording.append(value)
