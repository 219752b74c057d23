"""A session in which a turn can wait: beside what is committed, in the same record."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NotRequired, cast
from uuid import uuid4

from cachetools import LRUCache
from pydantic import BaseModel, ValidationError

from ..contract import AgentError, Turn
from ..sessions.sessions import (
    LastTurn,
    Loaded,
    Session,
    Sessions,
    Snapshot,
    serialize,
    without_messages,
)
from . import adapter
from .settings import ApprovalSettings


@dataclass(eq=False)
class Answers(Turn):
    """A turn that goes on: None for each call that is approved, or why it is denied."""

    reasons: dict[str, str | None] = field(default_factory=dict, repr=False)


class Call(BaseModel):
    """A tool call that waits."""

    id: str  # that of the call, with a mark: models number calls, and an answer is to one wait
    tool: str
    input: Any


class Waiting(BaseModel):
    """A turn that waits."""

    turn: int
    key: str | None  # of the last request
    prompt_key: str | None  # of the first one
    prompt: str
    reply: str  # so far
    calls: list[Call]
    until: int  # in unix seconds
    messages: list[Any]  # of the turn
    kept: dict[str, Any] = {}  # by capabilities
    other: dict[str, Any]  # what else the framework keeps


class Kept(LastTurn):
    """The `app_data` of a snapshot, with the turn that waits."""

    pending: NotRequired[Any]
    dropped: NotRequired[bool]
    claim: NotRequired[str]


# Turns of which it is unknown whether this process has claimed them, by session and claim; at most
# 64 MiB of them.
CLAIMS: LRUCache[tuple[str, str], Waiting] = LRUCache(
    64 << 20, getsizeof=lambda waiting: len(waiting.model_dump_json())
)


class WaitingSession(Session):
    """A session in which a turn can wait for a person, and go on in another process."""

    def __init__(self, sessions: Sessions, id: str, actor: str | None, loaded: Loaded) -> None:
        super().__init__(sessions, id, actor, loaded)
        last = cast(Kept | None, self.last)
        waiting = _read(last)
        claimed = CLAIMS.get((id, last.get("claim", ""))) if last and not waiting else None
        self._is_claimed = claimed is not None
        self.waiting: Waiting | None = _in_time(claimed) if claimed else waiting
        self._drops = False

    async def begin(self, turn: Turn) -> LastTurn | None:
        """Begin a turn, which drops the one that waits, or go on with that one.

        Raises AgentError `not_waiting` unless exactly the calls that wait are answered.
        """
        waiting, key = self.waiting, turn.key
        ids = [call.id for call in waiting.calls] if waiting else []
        if waiting and isinstance(turn, Answers) and turn.reasons.keys() == {*ids}:
            await self._go_on(turn, waiting)
            return None
        if repeated := self.find_repeated(turn):
            return repeated
        if waiting and key is not None and key in {waiting.key, waiting.prompt_key}:
            turn.replay(waiting.turn, waiting.reply)
            return self._result(waiting)
        if isinstance(turn, Answers):
            what = f"These tool calls wait, and all must be answered: {', '.join(ids)}."
            raise AgentError("not_waiting", what if ids else "")
        await super().begin(turn)
        self._drops = waiting is not None
        return None

    async def _go_on(self, turn: Answers, waiting: Waiting) -> None:
        key, turn.key = turn.key or waiting.key, None
        turn.replaces = waiting.turn if waiting.turn <= self.number else None
        turn.prompt, turn.notes["kept"] = waiting.prompt, waiting.kept
        await super().begin(turn)
        self.start["key"], turn.key = waiting.prompt_key, key
        if None in turn.reasons.values():
            # No stream begins while the claim is saved: the store can still refuse it.
            turn.has_begun = False
            await self._claim(waiting)
            turn.has_begun = True
        turn.reasons = {_call_id(id): reason for id, reason in turn.reasons.items()}
        turn.texts, turn.answers = [waiting.reply], adapter.answers(waiting.other, turn.reasons)
        self.data = {**waiting.other, "messages": [*self.data["messages"], *waiting.messages]}

    async def _claim(self, waiting: Waiting) -> None:
        """Take the turn out of the record before a tool runs, so that it runs only once.

        Raises AgentError: `not_waiting` if the session has ended, `session_conflict` if it changed,
        and what the store raises.
        """
        if self._is_claimed:
            CLAIMS.pop((self._id, cast(Kept, self.last)["claim"]), None)
            return
        snapshot, last = self._committed()
        # Else the same claim by another process looks like one of this process.
        claim = last["claim"] = uuid4().hex
        with suppress(ValueError):  # it is too large to be remembered
            CLAIMS[self._id, claim] = waiting
        try:
            await self.save(snapshot, last)
            claimed = await self._sessions.store.load(self._id)
        except AgentError as error:
            if error.type != "store_unavailable":  # else the claim may be saved, now or later
                CLAIMS.pop((self._id, claim), None)
            raise
        CLAIMS.pop((self._id, claim), None)
        if not claimed or not claimed.snapshot:
            raise AgentError("not_waiting")
        if json.loads(claimed.snapshot)["app_data"].get("claim") != claim:
            raise AgentError("session_conflict")
        self._stored = replace(claimed, is_rolled_back=self.is_rolled_back)

    def _committed(self) -> tuple[Snapshot, Kept]:
        """Return what is committed, without the turn that waits and its claim."""
        of_waiting = {"pending", "claim"}
        committed = {
            name: value for name, value in (self.last or {}).items() if name not in of_waiting
        }
        return cast(Snapshot, self.snapshot), cast(Kept, committed)

    async def commit(self, turn: Turn, snapshot: Snapshot, saved: Callable[[], None]) -> LastTurn:
        """Commit a turn; or keep it beside what is committed, if its tool calls wait."""
        if not turn.waiting:
            return await super().commit(turn, snapshot, saved)
        if len({call.id for call in turn.waiting}) < len(turn.waiting):
            # One answer would be to both of them.
            raise AgentError("model_failed", detail="two tool calls that wait have the same id")
        messages, mark = snapshot["data"]["messages"], uuid4().hex[:8]
        settings = cast(ApprovalSettings, self._sessions.settings)
        waiting = Waiting(
            turn=turn.number,
            key=turn.key,
            prompt_key=self.start["key"],
            prompt=turn.prompt,
            reply=turn.reply,
            calls=[
                Call(id=f"{call.id}.{mark}", tool=call.name, input=call.input)
                for call in turn.waiting
            ],
            until=int(time.time()) + settings.waiting_seconds,
            messages=messages[self.start["at"] :],
            kept=turn.notes.get("kept", {}),
            other=without_messages(snapshot["data"]),
        )
        none = Kept(actor=self._actor, turn=0, key=None, reply="", turns=[])
        before, last = snapshot | {"data": {"messages": []}}, none
        if self.last:
            before, last = self._committed()
        last["pending"] = waiting.model_dump()
        self.check_size(len(serialize(before | {"app_data": last})))  # it costs no older turn
        await super().save(before, last)
        turn.outcome = "waiting"
        return self._result(waiting)

    async def save(
        self, snapshot: Snapshot, last: LastTurn, saved: Callable[[], None] = lambda: None
    ) -> bytes:
        """Save; note in a turn that it took the place of the one that waited."""
        if self._drops:
            cast(Kept, last)["dropped"] = True
        return await super().save(snapshot, last, saved)

    def _result(self, waiting: Waiting) -> LastTurn:
        return cast(
            LastTurn,
            {
                "turn": waiting.turn,
                "waiting": [call.model_dump() for call in waiting.calls],
                "dropped": self._drops,
                "rolled_back": self.is_rolled_back,
            },
        )


def _call_id(id: str) -> str:
    """Return the id that the model gave to a call, without the mark of the wait."""
    return id.rpartition(".")[0]


def _read(last: Kept | None) -> Waiting | None:
    """Return the turn that waits, if it is readable and its time is not over."""
    try:
        return _in_time(Waiting.model_validate(last["pending"])) if last else None
    except (KeyError, ValidationError):
        return None


def _in_time(waiting: Waiting) -> Waiting | None:
    return waiting if time.time() < waiting.until else None
