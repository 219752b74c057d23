"""Sessions: each has a first-in-first-out queue of turns, and changes only by a commit."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NotRequired, Protocol, TypedDict, cast
from uuid import uuid4

from ..contract import (
    SESSION_ID,
    AgentError,
    Change,
    Marks,
    ToolCall,
    Turn,
    TurnRequest,
    TurnResult,
    well_formed,
)
from ..settings import CoreSettings
from .session_store import SessionStore, Stored

Data = dict[str, Any]  # in the framework's format
Message = dict[str, Any]  # in the framework's format

Records = dict[str, Any]
"""Data of capabilities beside the messages, by capability: JSON objects.

`open`, a number in a capability's object, counts the work that the agent still has to do.
"""

Snapshot = dict[str, Any]
"""A committed session: {"scope", "schema_version", "created_at", "data", "app_data"}.

The framework writes `data`; `app_data` is the LastTurn.
"""


class TurnStart(TypedDict):
    """Where a turn starts in the messages of its session.

    `other` is the framework's data from before the turn, except messages; set if the turn changed
    it.
    """

    at: int  # the index of the turn's first message
    key: str | None
    other: NotRequired[Data]


class Fork(TypedDict):
    """The request that created a session as a copy."""

    key: str  # the request's key, or a unique string
    turn: int  # the number of the last copied turn


class LastTurn(Marks):
    """The record of a session's last turn, except its messages."""

    actor: str | None
    turn: int
    key: str | None
    reply: str
    turns: list[TurnStart]  # the turns whose messages are in the session
    # Another program wrote the session and named no actor: the actor of the next turn owns it.
    ownerless: NotRequired[bool]
    fork: NotRequired[Fork]
    records: NotRequired[Records]  # a fork starts without records


@dataclass(frozen=True)
class SessionInfo:
    """An actor's session.

    `turns` is the number of turns so far: the number of the last turn, even if older turns were
    dropped. `saved_at` is the time of the last save, in ISO 8601.
    """

    session_id: str
    turns: int
    saved_at: str


@dataclass(frozen=True)
class SessionTurn:
    """A turn in a session."""

    number: int
    prompt: str
    reply: str


BINARY = {"bytes", "data", "image"}  # fields with the bytes of files

LoadResult = tuple[Stored | None, Snapshot | None]


class PlacedRequest(TurnRequest):
    """A request that chooses the place of its turn in the session."""

    def place(self, session: "Session", turn: Turn) -> int:
        """Return the number of turns in the session that precede the new turn."""
        raise NotImplementedError


class WaitingTurn(Protocol):
    """A turn with pending approvals."""

    turn: int
    prompt_key: str | None
    prompt: str
    messages: list[Message]

    @property
    def tool_calls(self) -> Sequence[ToolCall]:
        """The waiting calls, with the ids of their approvals."""


class SessionHooks:
    """A capability's methods for sessions; they do nothing unless you override them.

    The first capability that returns a value wins.
    """

    async def begin_turn(self, session: "Session", turn: Turn) -> "Stage | TurnResult | None":
        """Begin a turn in a custom way, or answer it without a model."""

    async def turn_begun(self, stage: "Stage") -> None:
        """Handle the begin of a turn that a model answers; `stage.history` may change."""

    def before_save(self, session: "Session", last: LastTurn, turn: Turn | None) -> None:
        """Replace records in `last["records"]` before a save. Not async.

        `turn` is the turn that the save commits, or None. If another process saved records first,
        the method is called again with its records.
        """

    async def hold_turn(self, stage: "Stage", snapshot: Snapshot) -> TurnResult | None:
        """Store a turn that waits for approvals."""

    def find_waiting(self, session: "Session") -> WaitingTurn | None:
        """Return the waiting turn of a session."""

    async def replace_dropped(
        self, turn: Turn, dropped: list[Message], at: int, last: int
    ) -> list[Message] | None:
        """Return replacements for dropped messages; the history begins with them.

        `at` is the index in `dropped` of the first message that belongs to a turn; the messages
        before it are replacements from a previous call. `last` is the number of the last dropped
        turn.
        """

    def session_ended(self, session_id: str) -> None:
        """Handle the end of a session. Not async; every capability is called."""


class Session:
    """A loaded session; only its `save` replaces the committed snapshot."""

    def __init__(
        self, sessions: "Sessions", id: str, actor: str | None, loaded: LoadResult
    ) -> None:
        self.id = id
        self.actor = actor
        self.sessions = sessions
        self._stored, self.snapshot = loaded
        self._saving = asyncio.Lock()
        self.last: LastTurn | None = self.snapshot["app_data"] if self.snapshot else None
        self.records: Records = self.last.get("records", {}) if self.last else {}
        self.is_lost = self._stored is not None and not self.last
        if self.last and self.last["actor"] != actor and not self.last.get("ownerless"):
            raise AgentError("session_forbidden")
        self.number = self.last["turn"] if self.last else 0
        self.data: Data = {"messages": []} | (self.snapshot["data"] if self.snapshot else {})
        turns = self.last.get("turns") if self.last else []
        self.turns = find_turns(self.data) if turns is None else turns
        self.fork = self.last.get("fork") if self.last else None

    @property
    def is_rolled_back(self) -> bool:
        """Whether the store has lost turns that this process has loaded."""
        return self._stored is not None and self._stored.is_rolled_back

    @property
    def size(self) -> int:
        """The size of the stored snapshot, in bytes."""
        return len(self._stored.snapshot) if self._stored else 0

    @property
    def waiting(self) -> WaitingTurn | None:
        """The turn with pending approvals."""
        turns = (hooks.find_waiting(self) for hooks in self.sessions.hooks)
        return next(filter(None, turns), None)

    async def begin(self, turn: Turn) -> "Stage | TurnResult":
        """Return the stage of a turn, or the result of an earlier turn with the same key.

        Raises AgentError: `invalid_request` if the turn to replace does not exist, or
        `session_too_large`.
        """
        stage = await self._begin(turn)
        if isinstance(stage, Stage):
            for hooks in self.sessions.hooks:
                await hooks.turn_begun(stage)
        return stage

    async def _begin(self, turn: Turn) -> "Stage | TurnResult":
        for hooks in self.sessions.hooks:
            if stage := await hooks.begin_turn(self, turn):
                return stage
        return self.find_repeated(turn) or await self.stage(turn)

    async def stage(self, turn: Turn, end: int | None = None) -> "Stage":
        """Number a turn and return its stage, which continues the turns before the index `end`."""
        if end is None:
            end = self._find_place(turn)
        stage = Stage(self, turn, end)
        turn.number = stage.number + 1
        if not turn.prompt:
            repeated = self.data["messages"][self.turns[end]["at"]]
            turn.prompt = text_of(repeated)
            stage.repeated_files = _parts_without_text(repeated)
        stage.check_size(sum(len(file.data) for file in turn.request.files))
        turn.has_begun = True
        await stage.limit()
        return stage

    def _find_place(self, turn: Turn) -> int:
        request = turn.request
        if isinstance(request, PlacedRequest):
            return request.place(self, turn)
        return len(self.turns) if request.replaces is None else self.find(request.replaces)

    def find_repeated(self, turn: Turn) -> TurnResult | None:
        """Return the result of the earlier turn with the same key, or None.

        Copied turns of a fork do not count. A turn with `replaces` can repeat only the last turn
        or the turn with that number.
        """
        if not self.last or turn.key is None:
            return None
        if turn.key == self.last["key"]:
            return turn.replay(self.number, self.last["reply"], marks_of(self.last))
        bounds = [*(start["at"] for start in self.turns), len(self.data["messages"])]
        first = self.number - len(self.turns) + 1
        last_copied = self.fork["turn"] if self.fork else 0
        replaces = turn.request.replaces
        for index, start in enumerate(self.turns):
            number = first + index
            is_in_place = replaces is None or replaces == number
            if number > last_copied and is_in_place and start["key"] == turn.key:
                messages = self.data["messages"][bounds[index] : bounds[index + 1]]
                if turn.request.output:
                    messages = messages[-1:]  # the value, without earlier texts
                return turn.replay(number, _reply_of(messages))
        return None

    def find(self, number: int) -> int:
        """Return the index of a turn number (0: the last turn). Raises `invalid_request`."""
        first = self.number - len(self.turns) + 1
        number = number or self.number
        if not self.turns or not first <= number <= self.number:
            message = f"No turn {number}: the session holds turns {first} to {self.number}."
            if not self.turns:
                message = "The session holds no turns."
            raise AgentError("invalid_request", message)
        return number - first

    def check_size(self, size: int) -> None:
        """Raise `session_too_large` if a snapshot of `size` bytes exceeds the limit."""
        if size > self.sessions.store.max_bytes:
            raise AgentError("session_too_large", detail=f"{size} bytes")

    async def save(
        self,
        snapshot: Snapshot,
        last: LastTurn,
        saved: Callable[[], None] = lambda: None,
        turn: Turn | None = None,
    ) -> None:
        """Save the snapshot and call `saved`. If it is too large, drop the oldest turns first.

        `turn` is the turn that the save commits.
        """
        async with self._saving:
            await self._save(snapshot, last, saved, turn)

    async def save_records(self) -> None:
        """Save only the records, as `before_save` of the capabilities returns them."""
        async with self._saving:
            stored = self._stored.snapshot if self._stored else b""
            snapshot = json.loads(stored) if stored else Excerpt(self, 0).empty()
            await self._save(snapshot, snapshot["app_data"], lambda: None, None)

    async def _save(
        self, snapshot: Snapshot, last: LastTurn, saved: Callable[[], None], turn: Turn | None
    ) -> None:
        while True:
            next_last = cast(LastTurn, {**last, "records": {**self.records}})
            if self.actor is not None and next_last.pop("ownerless", False):
                next_last["actor"] = self.actor  # even while its first turn is not committed
            for hooks in self.sessions.hooks:
                hooks.before_save(self, next_last, turn)
            if not next_last["records"]:
                del next_last["records"]
            serialized = self._serialize(snapshot, next_last)
            expected = self._stored.revision if self._stored else None
            try:
                revision = await self.sessions.store.save(self.id, serialized, expected, saved)
            except AgentError as error:
                if error.type != "session_conflict" or not await self._load_records():
                    raise
            else:
                self._stored = Stored(revision, serialized, self.is_rolled_back)
                self.records = next_last.get("records", {})
                return

    def _serialize(self, snapshot: Snapshot, last: LastTurn) -> bytes:
        serialized = serialize(snapshot | {"app_data": last})
        excess = len(serialized) - self.sessions.store.max_bytes
        if excess > 0:
            data = dict(snapshot["data"])
            last["turns"] = _drop_excess(data, last["turns"], excess)
            serialized = serialize(snapshot | {"data": data, "app_data": last})
        self.check_size(len(serialized))
        return serialized

    async def _load_records(self) -> bool:
        """Load the records that another process saved; return False if it saved more than that."""
        try:
            stored = await self.sessions.store.load(self.id)
        except AgentError:
            return False
        if not stored or not stored.snapshot or not self._stored or not self._stored.snapshot:
            return False
        if stored.revision == self._stored.revision:  # no other process saved
            return False
        latest = json.loads(stored.snapshot)
        known = json.loads(self._stored.snapshot)
        records = latest["app_data"].pop("records", {})
        known["app_data"].pop("records", None)
        if latest != known:
            return False
        self._stored = replace(stored, is_rolled_back=self.is_rolled_back)
        self.records = records
        return True

    async def claim(self, snapshot: Snapshot, last: LastTurn) -> Snapshot | None:
        """Save the snapshot and return it as stored, or None if the store has lost it.

        Only a turn that begins from this snapshot can commit.
        """
        await self.save(snapshot, last)
        claimed = await self.sessions.store.load(self.id)
        if not claimed or not claimed.snapshot:
            return None
        self._stored = replace(claimed, is_rolled_back=self.is_rolled_back)
        stored: Snapshot = json.loads(claimed.snapshot)
        self.records = stored["app_data"].get("records", {})
        return stored

    async def take_back(self) -> int:
        """Delete the last turn and return its number.

        Raises AgentError if the session has no turns.
        """
        earlier = Excerpt(self, self.find(0))
        if earlier.number:
            await self.save(earlier.snapshot(), earlier.last_turn())
        else:
            await self.end()
        return self.number

    async def end(self) -> None:
        """Delete the session, and data of it that an earlier end or a quarantine left."""
        if self.last:
            await self.sessions.store.end(self.id)
        else:
            await self.sessions.store.end_rest(self.id, self.actor)
        for hooks in self.sessions.hooks:
            hooks.session_ended(self.id)


class Excerpt:
    """The turns of a session before the index `end`."""

    def __init__(self, session: Session, end: int) -> None:
        self.session = session
        self.number = session.number - len(session.turns) + end  # of the last turn
        self.turns = session.turns[:end]
        dropped = session.turns[end:]
        self.history: list[Message] = session.data["messages"]
        if dropped:
            self.history = self.history[: dropped[0]["at"]]
        others = (start["other"] for start in dropped if "other" in start)
        self.other: Data = next(others, without_messages(session.data))
        self.fork = session.fork
        if self.fork:
            self.fork = Fork(key=self.fork["key"], turn=min(self.fork["turn"], self.number))

    @property
    def data(self) -> Data:
        """The framework's data."""
        return {**self.other, "messages": self.history}

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the excerpt, with the current time as `created_at`."""
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        return {**(self.session.snapshot or {}), "data": self.data, "created_at": now}

    def last_turn(self, key: str | None = None, reply: str = "") -> LastTurn:
        """Return the `app_data` of the excerpt."""
        actor = self.session.actor
        turns = [*self.turns]
        last = LastTurn(actor=actor, turn=self.number, key=key, reply=reply, turns=turns)
        if self.fork:
            last["fork"] = self.fork
        return last

    def empty(self) -> Snapshot:
        """Return the snapshot of a new session, without turns."""
        head = {"scope": "agent", "schema_version": "1.0"}
        return {**self.snapshot(), **head, "app_data": self.last_turn()}


class Stage(Excerpt):
    """The working copy of a session that a running turn extends and then commits."""

    def __init__(self, session: Session, turn: Turn, end: int) -> None:
        super().__init__(session, end)
        self.turn = turn
        self.key = turn.key  # of the prompt
        self.marks = Marks()  # of the commit
        # For a resumed turn: its messages, the framework's other data, and the approvals in the
        # framework's format.
        self.resumed: list[Message] = []
        self.resumed_other: Data | None = None
        self.answers: Any = None
        self.has_final_result = False  # the reply is the result of a tool
        # The files of a prompt that runs again, in the framework's format.
        self.repeated_files: list[Any] = []

    @property
    def at(self) -> int:
        """The index of the first message of the turn."""
        return len(self.history)

    @property
    def data(self) -> Data:
        """The framework's data, with the messages of a resumed turn."""
        other = self.other if self.resumed_other is None else self.resumed_other
        return {**other, "messages": [*self.history, *self.resumed]}

    def check_size(self, file_bytes: int) -> None:
        """Raise `session_too_large` if the prompt and files of this size exceed the limit."""
        self.session.check_size(len(self.turn.prompt.encode()) + file_bytes * 4 // 3)  # in base64

    async def limit(self) -> None:
        """If the history exceeds a limit, cut it to half of that limit."""
        settings = self.session.sessions.settings
        # A snapshot is longer than its texts together, which take time to count.
        is_short = self.session.size <= settings.history_chars
        if is_short and self.at <= settings.history_messages:
            return
        char_counts = _chars_before(self.history)
        # Half the limit leaves room for later turns: fewer cuts let requests share a cached prefix.
        first = first_chars = 0
        if self.at > settings.history_messages:
            first = self.at - settings.history_messages // 2
        if char_counts[-1] > settings.history_chars:
            first_chars = char_counts[-1] - settings.history_chars // 2
        if first or first_chars:
            starts = [turn["at"] for turn in self.turns] or [0]
            end = starts[-1]
            # Keep the only turn: without it, each large turn would need a summary.
            if self.session.sessions.replaces_dropped and len(starts) > 1:
                end = self.at
            cuts = (at for at in starts if at >= first and char_counts[at] >= first_chars)
            await self.shorten(next(cuts, end))

    async def shorten(self, end: int) -> None:
        """Drop the messages before the index `end`: a turn begins there, or the history ends."""
        dropped = self.history[:end]
        at = self.turns[0]["at"] if self.turns else self.at
        self.turns = _move(self.turns, end, 0)
        self.history = self.history[end:]
        for hooks in self.session.sessions.hooks if dropped else ():
            last = self.number - len(self.turns)
            summary = await hooks.replace_dropped(self.turn, dropped, at, last)
            if summary is not None:
                self.turns = _move(self.turns, 0, len(summary))
                self.history = [*summary, *self.history]
                return

    async def reduce(self, *, drops_all: bool = False) -> None:
        """Remove the older half (by size) or all of the history before the running turn.

        The stored session changes only when the turn commits.
        """
        later = [start["at"] for start in self.turns[1:]]
        if not self.turns:
            self.history = []
        elif drops_all or not later:
            await self.shorten(self.at)
        else:
            char_counts = _chars_before(self.history)
            half = (char_counts[self.turns[0]["at"]] + char_counts[-1]) / 2
            await self.shorten(next((at for at in later if char_counts[at] >= half), later[-1]))

    async def commit(self, snapshot: Snapshot, saved: Callable[[], None]) -> TurnResult:
        """Save the snapshot of the turn, call `saved`, and return the result.

        `saved` is a callback, because a save whose confirmation was lost may be discovered only
        when a later turn loads the session. Raises AgentError.
        """
        turn = self.turn
        session = self.session
        if turn.waiting:
            return await self._hold(snapshot)
        start = TurnStart(at=self.at, key=self.key)
        if self.other != without_messages(snapshot["data"]):
            start["other"] = self.other
        if session.is_lost:
            self.marks["restarted"] = True
        if session.is_rolled_back:
            self.marks["rolled_back"] = True
        last = LastTurn(**self.last_turn(turn.key, turn.reply), **self.marks)
        last["turn"] = turn.number
        last["turns"].append(start)
        await session.save(snapshot, last, saved, turn)
        return turn.end("committed", self.marks)

    async def _hold(self, snapshot: Snapshot) -> TurnResult:
        for hooks in self.session.sessions.hooks:
            if result := await hooks.hold_turn(self, snapshot):
                return result
        name = self.turn.waiting[0].name
        what = f"The tool {name} needs approval, but approvals are not enabled"
        detail = f"tool {name} asks for approval"
        raise AgentError("reply_incomplete", f"{what}; this turn was not saved.", detail)


class Sessions:
    """The sessions of this process."""

    def __init__(
        self, settings: CoreSettings, store: SessionStore, hooks: Sequence[SessionHooks] = ()
    ) -> None:
        self.settings = settings
        self.store = store
        self.hooks = hooks
        self._locks: dict[str, asyncio.Lock] = {}
        self._loads: dict[str, asyncio.Task[LoadResult]] = {}  # the latest load by session
        self._turns: Counter[str] = Counter()  # running or queued
        self._users: Counter[str] = Counter()  # of a lock

    @property
    def replaces_dropped(self) -> bool:
        """Whether a capability may replace dropped messages."""
        default = SessionHooks.replace_dropped
        return any(type(hooks).replace_dropped is not default for hooks in self.hooks)

    @asynccontextmanager
    async def open(self, session_id: str, actor: str | None) -> AsyncIterator[Session]:
        """Wait for earlier turns, then load the committed session.

        Raises AgentError: `invalid_session_id`, `session_forbidden` if another actor owns the
        session, `session_busy` at once if the queue is full, or an error of the store. The owner
        is checked before and after the wait. All callers without an actor count as one actor.
        """
        if not re.fullmatch(SESSION_ID, session_id):
            raise AgentError("invalid_session_id")
        if load := self._loads.get(session_id):  # other actors get no place in the queue
            await asyncio.wait({load})
            if not load.cancelled() and not load.exception():
                Session(self, session_id, actor, load.result())
        if self._turns[session_id] > self.settings.session_queue:
            raise AgentError("session_busy")
        self._turns[session_id] += 1
        try:
            async with self._lock(session_id):
                load = asyncio.create_task(self._load(session_id))
                self._loads[session_id] = load
                # Otherwise a client of a store can lose the cancellation of the turn.
                yield Session(self, session_id, actor, await asyncio.shield(load))
        finally:
            self._turns[session_id] -= 1
            if not self._turns[session_id]:
                del self._turns[session_id]

    @asynccontextmanager
    async def open_for_work(self, session_id: str) -> AsyncIterator[Session]:
        """Wait for earlier turns, then load a session for a capability's work outside a turn.

        This needs no actor, and no place in the queue of turns. Raises AgentError of the store.
        """
        async with self._lock(session_id):
            stored, snapshot = await self._load(session_id)
            actor = snapshot["app_data"]["actor"] if snapshot else None
            yield Session(self, session_id, actor, (stored, snapshot))

    @asynccontextmanager
    async def _lock(self, session_id: str) -> AsyncIterator[None]:
        self._users[session_id] += 1
        try:
            async with self._locks.setdefault(session_id, asyncio.Lock()):
                yield
        finally:
            self._users[session_id] -= 1
            if not self._users[session_id]:
                del self._users[session_id], self._locks[session_id]
                self._loads.pop(session_id, None)

    async def fork(self, change: Change) -> None:
        """Copy the first turns of a session to a new session.

        Raises `session_conflict` if the new session already exists, unless a request with the same
        key created it.
        """
        fork_id = change.fork
        actor = change.actor
        key = change.key
        if key:
            async with self.open(fork_id, actor) as copy:
                if copy.fork and copy.fork["key"] == key:
                    return
        async with self.open(change.session_id, actor) as session:
            excerpt = Excerpt(session, session.find(change.turns) + 1)
        last = excerpt.last_turn()
        # A random key distinguishes this copy from an identical copy by another process.
        last["fork"] = Fork(key=key or uuid4().hex, turn=change.turns)
        async with self.open(fork_id, actor) as copy:
            if key and copy.fork and copy.fork["key"] == key:  # created during the wait
                return
            if copy.last:
                message = f"The session {fork_id} already exists: choose another id."
                raise AgentError("session_conflict", message)
            await copy.save(excerpt.snapshot(), last)

    async def read(self, session_id: str, actor: str | None) -> Session:
        """Return a session without waiting for a running turn. Raises the errors of `open`."""
        if load := self._loads.get(session_id):  # the snapshot before the running turn
            await asyncio.wait({load})
            if not load.cancelled():
                return Session(self, session_id, actor, load.result())
        async with self.open(session_id, actor) as session:
            return session

    async def list(self, actor: str | None) -> Sequence[SessionInfo]:
        """Return the sessions of an actor, including forks, most recently saved first.

        Reads the whole store. Raises AgentError: `actor_required`, `store_unavailable`.
        """
        if actor is None:
            raise AgentError("actor_required")
        sessions = []
        async for session_id, snapshot in self.store.snapshots():
            value = json.loads(snapshot)
            if value["app_data"]["actor"] == actor:
                last = value["app_data"]
                saved_at = value["created_at"]
                sessions.append(SessionInfo(session_id, last["turn"], saved_at))
        return sorted(sessions, key=lambda session: session.saved_at, reverse=True)

    async def turns(self, session_id: str, actor: str | None) -> Sequence[SessionTurn]:
        """Return the turns in a session, in order. Raises the errors of `open`."""
        session = await self.read(session_id, actor)
        messages = session.data["messages"]
        first = session.number - len(session.turns) + 1
        bounds = [*(start["at"] for start in session.turns), len(messages)]
        return [
            SessionTurn(first + index, text_of(messages[at]), _reply_of(messages[at:end]))
            for index, (at, end) in enumerate(pairwise(bounds))
        ]

    async def end(self, session_id: str, actor: str | None) -> None:
        """Delete a session without calling `before_change`. Raises the errors of `open`."""
        async with self.open(session_id, actor) as session:
            await session.end()

    async def _load(self, session_id: str) -> LoadResult:
        stored = await self.store.load(session_id)
        return stored, json.loads(stored.snapshot) if stored and stored.snapshot else None


def serialize(value: object) -> bytes:
    """Return JSON in UTF-8: bytes as URL-safe base64, NaN as null, other types as pydantic does."""
    import pydantic_core  # takes 10 ms, which `--help` need not spend

    try:
        return pydantic_core.to_json(value, bytes_mode="base64", inf_nan_mode="null")
    except pydantic_core.PydanticSerializationError:  # a lone surrogate, or more than 250 levels
        default = partial(pydantic_core.to_jsonable_python, bytes_mode="base64")
        return well_formed(json.dumps(value, ensure_ascii=False, default=default)).encode()


def find_turns(data: Data) -> list[TurnStart]:
    """Return the turns of a session that an older version stored without `turns`."""
    are_prompts = [m["role"] == "user" and text_of(m) != "" for m in data["messages"]]
    return [TurnStart(at=at, key=None) for at, is_prompt in enumerate(are_prompts) if is_prompt]


def text_of(message: Message) -> str:
    """Return the text of a message in the format of Strands or of the AI SDK."""
    parts = message.get("content") or message.get("parts") or []
    return "".join(part.get("text", "") for part in parts)


def _parts_without_text(message: Message) -> list[Any]:
    parts = message.get("content") or message.get("parts") or []
    return [part for part in parts if "text" not in part]


def _reply_of(messages: list[Message]) -> str:
    """Return the assistant's text in messages in the format of Strands or of the AI SDK."""
    replies = (message for message in messages if message["role"] == "assistant")
    parts = (part for reply in replies for part in reply.get("content") or reply.get("parts") or [])
    return "".join(part.get("text", "") for part in parts if part.get("kind", "text") == "text")


def without_messages(data: Data) -> Data:
    """Return the framework's data without messages."""
    return {name: value for name, value in data.items() if name != "messages"}


def chars_of(value: object) -> int:
    """Return the number of characters in all strings of a value, without the bytes of files."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(map(chars_of, value))
    if isinstance(value, dict):
        return sum(chars_of(item) for name, item in value.items() if name not in BINARY)
    return 0


def _chars_before(messages: list[Message]) -> list[int]:
    """Return the number of characters before each message, and the total."""
    return [0, *accumulate(map(chars_of, messages))]


def marks_of(last: LastTurn) -> Marks:
    """Return the marks of a stored turn."""
    names = Marks.__annotations__
    return cast(Marks, {name: True for name in names if last.get(name)})


def _drop_excess(data: Data, turns: list[TurnStart], excess: int) -> list[TurnStart]:
    """Drop the oldest turns of `data` until `excess` bytes are gone; return the remaining turns.

    Messages before the turns, such as a summary, stay if they fit.
    """
    messages = data["messages"]
    ends = [0, *accumulate(len(serialize(message)) for message in messages)]
    starts = [turn["at"] for turn in turns] or [0]
    front = starts[0]
    end = next((at for at in starts[1:] if ends[at] - ends[front] >= excess), None)
    if end is None:
        front = 0
        end = next((at for at in starts if ends[at] >= excess), starts[-1])
    data["messages"] = messages[:front] + messages[end:]
    return _move(turns, end, front)


def _move(turns: list[TurnStart], start: int, to: int) -> list[TurnStart]:
    """Return the turns that begin at the message `start` or later, with `start` moved to `to`."""
    return [{**turn, "at": turn["at"] - start + to} for turn in turns if turn["at"] >= start]
