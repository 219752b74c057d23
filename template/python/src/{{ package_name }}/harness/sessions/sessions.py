"""Sessions: one first-in-first-out queue each, and the only way to replace a snapshot."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NotRequired, TypedDict
from uuid import uuid4

from ..contract import AgentError, Change, Turn, well_formed
from ..settings import CoreSettings
from .session_store import SessionStore, Stored

Snapshot = dict[str, Any]
"""A committed session: {"scope", "schema_version", "created_at", "data", "app_data"}.

`data` is the framework's; `app_data` is the LastTurn.
"""


class TurnStart(TypedDict):
    """Where a turn begins, and what else the framework kept before it, if the turn changed that."""

    at: int  # the index of its first message
    key: str | None
    other: NotRequired[dict[str, Any]]


class Fork(TypedDict):
    """The request that made a session as a copy of another one."""

    key: str  # of the request, or unique
    turn: int  # the last one that was copied


class LastTurn(TypedDict):
    """What a session keeps of its last turn, besides the messages."""

    actor: str | None
    turn: int
    key: str | None
    reply: str
    turns: list[TurnStart]  # those whose messages the session holds
    restarted: NotRequired[bool]  # the turns before it have vanished from the store
    fork: NotRequired[Fork]
    rolled_back: NotRequired[bool]  # the last turns before it have vanished from the store


@dataclass(frozen=True)
class SessionInfo:
    """A session of an actor: its id, the number of its last turn, and the time of that save."""

    session_id: str
    turns: int
    saved_at: str


@dataclass(frozen=True)
class SessionTurn:
    """A turn that a session holds."""

    number: int
    prompt: str
    reply: str


BINARY = {"bytes", "data", "image"}  # where messages hold the bytes of files, which are no text

Loaded = tuple[Stored | None, Snapshot | None]


class Session:
    """A session during one turn: the committed snapshot, and the only way to replace it."""

    def __init__(self, sessions: "Sessions", id: str, actor: str | None, loaded: Loaded) -> None:
        self._id, self._actor, self._sessions = id, actor, sessions
        self._stored, self.snapshot = loaded
        self.last: LastTurn | None = self.snapshot["app_data"] if self.snapshot else None
        if self.last and self.last["actor"] != actor:
            raise AgentError("session_forbidden")
        self.number = self.last["turn"] if self.last else 0
        self.data = {"messages": []} | (self.snapshot["data"] if self.snapshot else {})
        turns = self.last.get("turns") if self.last else []
        self.turns = find_turns(self.data) if turns is None else turns
        self.fork = self.last.get("fork") if self.last else None
        self.waiting: Any = None  # a turn that waits for an approval

    @property
    def is_rolled_back(self) -> bool:
        """Whether the store has lost turns that this process has seen."""
        return self._stored is not None and self._stored.is_rolled_back

    async def begin(self, turn: Turn) -> LastTurn | None:
        """Number the turn, and reduce `data` to the turns that the model is shown.

        If the turn's key repeats that of a turn in the session, return that turn for replay.
        Raises AgentError: `invalid_request` if there is no turn to replace, `session_too_large`.
        """
        if repeated := self.find_repeated(turn):
            return repeated
        end = turn.follow(self)
        turn.number = self.number + 1 - len(self.turns) + end
        turn.prompt = turn.prompt or text_of(self.data["messages"][self.turns[end]["at"]])
        self.check_size(len(turn.prompt.encode()))
        self.cut(end)
        turn.has_begun = True
        await self._limit(turn)
        self.start = TurnStart(at=len(self.data["messages"]), key=turn.key)
        self.other = without_messages(self.data)
        return None

    def find_repeated(self, turn: Turn) -> LastTurn | None:
        """Return the turn that this one repeats, by its key, and fill this one from it.

        Turns that a fork copied do not count. A turn that replaces another one can repeat only the
        last, or the one that stands in that place by now.
        """
        if not self.last or turn.key is None:
            return None
        if turn.key == self.last["key"]:
            turn.replay(self.number, self.last["reply"])
            return self.last
        bounds = [*(start["at"] for start in self.turns), len(self.data["messages"])]
        first = self.number - len(self.turns) + 1
        copied = self.fork["turn"] if self.fork else 0
        for index, start in enumerate(self.turns):
            number = first + index
            is_in_place = turn.replaces is None or turn.replaces == number
            if number > copied and is_in_place and start["key"] == turn.key:
                messages = self.data["messages"][bounds[index] : bounds[index + 1]]
                reply = _reply_of(messages)
                turn.replay(number, reply)
                return self._last_turn(number, turn.key, reply, [])
        return None

    def _last_turn(
        self, number: int, key: str | None, reply: str, turns: list[TurnStart]
    ) -> LastTurn:
        last = LastTurn(actor=self._actor, turn=number, key=key, reply=reply, turns=turns)
        if self.fork:
            last["fork"] = self.fork
        return last

    async def _limit(self, turn: Turn) -> None:
        """Cut a history of too many messages or characters to half, in front of this turn."""
        messages = self.data["messages"]
        settings = self._sessions.settings
        before = _chars_before(messages)
        # Half the limit leaves room for later turns, whose requests begin alike: caches hold.
        least = least_chars = 0
        if len(messages) > settings.history_messages:
            least = len(messages) - settings.history_messages // 2
        if before[-1] > settings.history_chars:
            least_chars = before[-1] - settings.history_chars // 2
        if least or least_chars:
            end = self.find_cut(lambda at: at >= least and before[at] >= least_chars)
            await self.shorten(turn, end)

    def find_cut(self, fits: Callable[[int], bool]) -> int:
        """Return where the first turn that fits begins, or the last turn."""
        return _first(self.turns, fits)

    async def shorten(self, turn: Turn, end: int) -> None:
        """Drop the messages in front of this index, where a turn begins or the history ends."""
        self.turns = _drop(self.data, self.turns, end)

    async def reduce(self, turn: Turn, *, drops_all: bool = False) -> None:
        """Remove the older half (by size) or all of the history in front of a running turn.

        The session in the store changes with the commit of the turn.
        """
        messages, at = self.data["messages"], self.start["at"]
        self.data["messages"] = messages[:at]
        before = _chars_before(messages[:at])
        later = [start["at"] for start in self.turns[1:]]
        if not self.turns:
            self.data["messages"] = []
        elif drops_all or not later:
            await self.shorten(turn, at)
        else:
            half = (before[self.turns[0]["at"]] + before[at]) / 2
            await self.shorten(turn, next((it for it in later if before[it] >= half), later[-1]))
        self.start["at"] = len(self.data["messages"])
        self.data["messages"] = self.data["messages"] + messages[at:]

    def find(self, number: int) -> int:
        """Return the index of a turn, given its number (0: the last). Raises `invalid_request`."""
        first, number = self.number - len(self.turns) + 1, number or self.number
        if not self.turns or not first <= number <= self.number:
            held = f"No turn {number}: the session holds turns {first} to {self.number}."
            what = held if self.turns else "The session holds no turns."
            raise AgentError("invalid_request", what)
        return number - first

    def cut(self, end: int) -> LastTurn:
        """Reduce the session to what it was before the turn of this index."""
        number = self.number - len(self.turns) + end
        if end < len(self.turns):
            messages = self.data["messages"][: self.turns[end]["at"]]
            others = (start["other"] for start in self.turns[end:] if "other" in start)
            self.data = next(others, self.data) | {"messages": messages}
            self.turns = self.turns[:end]
        if self.fork:
            self.fork = Fork(key=self.fork["key"], turn=min(self.fork["turn"], number))
        return self._last_turn(number, None, "", self.turns)

    def check_size(self, size: int) -> None:
        """Raise `session_too_large` if a snapshot of so many bytes is."""
        if size > self._sessions.store.max_bytes:
            raise AgentError("session_too_large", detail=f"{size} bytes")

    async def commit(self, turn: Turn, snapshot: Snapshot, saved: Callable[[], None]) -> LastTurn:
        """Save the snapshot that a turn leaves, call `saved`, and return the `app_data`.

        `saved` is a callback because a save whose acknowledgement was lost is found by a later
        load, in another turn. Raises AgentError.
        """
        if turn.waiting:
            name = turn.waiting[0].name
            what = f"The tool {name} asks for an approval, which nobody can give here"
            detail = f"tool {name} asks for approval"
            raise AgentError("reply_incomplete", f"{what}; this turn was not kept.", detail)
        if self.other != without_messages(snapshot["data"]):
            self.start["other"] = self.other
        last = self._last_turn(turn.number, turn.key, turn.reply, [*self.turns, self.start])
        if self._stored and not self.last:  # the turns before it have vanished
            last["restarted"] = True
        if self.is_rolled_back:
            last["rolled_back"] = True
        await self.save(snapshot, last, saved)
        return last

    async def save(
        self, snapshot: Snapshot, last: LastTurn, saved: Callable[[], None] = lambda: None
    ) -> bytes:
        """Save, and return the JSON; if it is too large, without its oldest turns."""
        serialized = serialize(snapshot | {"app_data": last})
        excess = len(serialized) - self._sessions.store.max_bytes
        if excess > 0:
            data = dict(snapshot["data"])
            ends = [0, *accumulate(len(serialize(message)) for message in data["messages"])]
            first = _first(last["turns"], lambda at: ends[at] >= excess)
            last["turns"] = _drop(data, last["turns"], first)
            serialized = serialize(snapshot | {"data": data, "app_data": last})
        self.check_size(len(serialized))
        expected = self._stored.revision if self._stored else None
        await self._sessions.store.save(self._id, serialized, expected, saved)
        return serialized

    async def take_back(self) -> int:
        """Delete the last turn, and return its number. Raises AgentError if there is none."""
        last = self.cut(self.find(0))
        if last["turn"]:
            await self.save((self.snapshot or {}) | {"data": self.data}, last)
        else:
            await self.end()
        return self.number

    async def end(self) -> None:
        """Delete the session, if it was found."""
        if self._stored:
            await self._sessions.store.end(self._id)


class Sessions:
    """The sessions of this process."""

    def __init__(self, settings: CoreSettings, store: SessionStore) -> None:
        self.settings, self.store = settings, store
        self.session_class = Session
        self._locks: dict[str, asyncio.Lock] = {}
        self._loads: dict[str, asyncio.Task[Loaded]] = {}  # the latest of each
        self._turns: Counter[str] = Counter()  # running or waiting

    @asynccontextmanager
    async def open(self, session_id: str, actor: str | None) -> AsyncIterator[Session]:
        """Wait for the turns before this one, then load what is committed.

        Raises AgentError: `session_forbidden` if another actor owns the session, checked before and
        after the wait (callers without an actor count as one); `session_busy` at once if too many
        wait; and what the store raises.
        """
        if load := self._loads.get(session_id):  # other actors get no place in the queue
            await asyncio.wait({load})
            if not load.cancelled() and not load.exception():
                self.session_class(self, session_id, actor, load.result())
        if self._turns[session_id] > self.settings.session_queue:
            raise AgentError("session_busy")
        self._turns[session_id] += 1
        try:
            async with self._locks.setdefault(session_id, asyncio.Lock()):
                load = asyncio.create_task(self._load(session_id))
                self._loads[session_id] = load
                yield self.session_class(self, session_id, actor, await load)
        finally:
            self._turns[session_id] -= 1
            if not self._turns[session_id]:
                del self._turns[session_id], self._locks[session_id]
                self._loads.pop(session_id, None)

    async def fork(self, change: Change) -> None:
        """Copy the first turns of a session to a new one.

        Raises `session_conflict` if it exists, unless a request with the same key has made it.
        """
        to, actor, key = change.fork, change.actor, change.key
        if key:
            async with self.open(to, actor) as copy:
                if copy.fork and copy.fork["key"] == key:
                    return
        async with self.open(change.session_id, actor) as session:
            last = session.cut(session.find(change.turns) + 1)
        # Without a unique key, the same copy by another process looks like this one.
        last["fork"] = Fork(key=key or uuid4().hex, turn=change.turns)
        async with self.open(to, actor) as copy:
            if key and copy.fork and copy.fork["key"] == key:  # made while this request waited
                return
            if copy.last:
                raise AgentError("session_conflict", f"The session {to} exists already.")
            await copy.save((session.snapshot or {}) | {"data": session.data}, last)

    async def read(self, session_id: str, actor: str | None) -> Session:
        """Return the session to read; usually without a wait. Raises like `open`."""
        if load := self._loads.get(session_id):  # what the running turn began with
            await asyncio.wait({load})
            if not load.cancelled():
                return self.session_class(self, session_id, actor, load.result())
        async with self.open(session_id, actor) as session:
            return session

    async def list(self, actor: str | None) -> Sequence[SessionInfo]:
        """Return the sessions of an actor, forks included, the last saved first.

        This reads all sessions of the store. Raises AgentError `store_unavailable`.
        """
        found = []
        async for session_id, snapshot in self.store.snapshots():
            value = json.loads(snapshot)
            if value["app_data"]["actor"] == actor:
                last, saved_at = value["app_data"], value["created_at"]
                found.append(SessionInfo(session_id, last["turn"], saved_at))
        return sorted(found, key=lambda session: session.saved_at, reverse=True)

    async def turns(self, session_id: str, actor: str | None) -> Sequence[SessionTurn]:
        """Return the turns that a session holds, in order. Raises like `open`."""
        session = await self.read(session_id, actor)
        messages = session.data["messages"]
        first = session.number - len(session.turns) + 1
        bounds = [*(start["at"] for start in session.turns), len(messages)]
        return [
            SessionTurn(first + index, text_of(messages[at]), _reply_of(messages[at:end]))
            for index, (at, end) in enumerate(pairwise(bounds))
        ]

    async def end(self, session_id: str, actor: str | None) -> None:
        """Delete a session. Raises like `open`."""
        async with self.open(session_id, actor) as session:
            await session.end()

    async def _load(self, session_id: str) -> Loaded:
        stored = await self.store.load(session_id)
        return stored, json.loads(stored.snapshot) if stored and stored.snapshot else None


def serialize(value: Any) -> bytes:
    """Return JSON in UTF-8. Bytes become URL-safe base64, NaN null, others what pydantic makes."""
    import pydantic_core  # takes 10 ms, and `--help` does not need it

    try:
        return pydantic_core.to_json(value, bytes_mode="base64", inf_nan_mode="null")
    except pydantic_core.PydanticSerializationError:  # a lone surrogate, or more than 250 levels
        default = partial(pydantic_core.to_jsonable_python, bytes_mode="base64")
        return well_formed(json.dumps(value, ensure_ascii=False, default=default)).encode()


def find_turns(data: dict[str, Any]) -> list[TurnStart]:
    """Return the turns of a session that was stored without `turns`."""
    are_prompts = [m["role"] == "user" and text_of(m) != "" for m in data["messages"]]
    return [TurnStart(at=at, key=None) for at, is_prompt in enumerate(are_prompts) if is_prompt]


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message, in the form of either framework."""
    parts = message.get("content") or message.get("parts") or []
    return "".join(part.get("text", "") for part in parts)


def _reply_of(messages: list[dict[str, Any]]) -> str:
    """Return the text of the replies among messages, in the form of either framework."""
    replies = (message for message in messages if message["role"] == "assistant")
    parts = (part for reply in replies for part in reply.get("content") or reply.get("parts") or [])
    return "".join(part.get("text", "") for part in parts if part.get("kind", "text") == "text")


def without_messages(data: dict[str, Any]) -> dict[str, Any]:
    """Return what else a framework keeps."""
    return {name: value for name, value in data.items() if name != "messages"}


def chars_of(value: Any) -> int:
    """Return the number of characters of all texts in messages."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(map(chars_of, value))
    if isinstance(value, dict):
        return sum(chars_of(item) for name, item in value.items() if name not in BINARY)
    return 0


def _chars_before(messages: list[Any]) -> list[int]:
    """Return the number of characters in front of each message, and that of all."""
    return [0, *accumulate(map(chars_of, messages))]


def _first(turns: list[TurnStart], fits: Callable[[int], bool]) -> int:
    """Return where the first turn that fits begins, or the last."""
    starts = [turn["at"] for turn in turns] or [0]
    return next(filter(fits, starts), starts[-1])


def _drop(data: dict[str, Any], turns: list[TurnStart], at: int) -> list[TurnStart]:
    """Drop the messages before an index; return where the turns behind it begin."""
    data["messages"] = data["messages"][at:]
    return [{**turn, "at": turn["at"] - at} for turn in turns if turn["at"] >= at]
