"""Pending turns, stored in the session's record beside its committed turns."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NotRequired, cast
from uuid import uuid4

from cachetools import LRUCache
from pydantic import BaseModel, ValidationError

from ..contract import AgentError, Marks, ToolCall, Turn, TurnRequest, TurnResult
from ..deadline import retrieve_error
from ..sessions.sessions import LastTurn, Session, Snapshot, Stage, serialize, without_messages
from . import adapter


@dataclass(frozen=True)
class Answers(TurnRequest):
    """A request that resumes a turn. Reason None approves a call; any other reason denies it."""

    reasons: dict[str, str | None] = field(default_factory=dict, repr=False)

    @property
    def needs_prompt(self) -> bool:
        """Return False: the pending turn has the prompt."""
        return False

    @property
    def reasons_by_call(self) -> dict[str, str | None]:
        """The reasons by the model's call ids."""
        return {call_id(id): reason for id, reason in self.reasons.items()}


class Call(BaseModel):
    """A pending tool call."""

    id: str  # with a unique suffix: models reuse ids, but an answer is for one approval
    tool: str
    input: Any


class Waiting(BaseModel):
    """A pending turn."""

    turn: int
    key: str | None  # the key of the last request
    prompt_key: str | None  # the key of the first request
    prompt: str
    reply: str  # the reply so far
    calls: list[Call]
    until: int  # Unix time in seconds
    messages: list[Any]  # the messages of the turn
    kept: dict[str, Any] = {}  # JSON data of capabilities
    other: dict[str, Any]  # the framework's remaining state

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The pending calls, by the ids of their approvals."""
        return [ToolCall(call.id, call.tool, call.input) for call in self.calls]


class PendingData(LastTurn):
    """The `app_data` of a snapshot, with the pending turn."""

    pending: NotRequired[Any]
    claim: NotRequired[str]


# Turns that this process may have claimed, by session and claim: at most 8 Mi characters of JSON.
CLAIMS: LRUCache[tuple[str, str], Waiting] = LRUCache(
    8 << 20, getsizeof=lambda waiting: len(waiting.model_dump_json())
)


def waiting_in(session: Session) -> Waiting | None:
    """Return the pending turn, or a turn that this process may have claimed."""
    last = cast(PendingData | None, session.last)
    if waiting := _read(last):
        return waiting
    claimed = CLAIMS.get((session.id, last.get("claim", ""))) if last else None
    return _in_time(claimed) if claimed else None


async def begin(session: Session, turn: Turn) -> Stage | TurnResult | None:
    """Begin a turn and drop the pending turn, or resume the pending turn.

    Raises AgentError `not_waiting` unless the answers match the pending calls.
    """
    waiting = waiting_in(session)
    answers = turn.request if isinstance(turn.request, Answers) else None
    ids = [call.id for call in waiting.calls] if waiting else []
    if waiting and answers and answers.reasons.keys() == {*ids}:
        return await _resume(session, turn, answers, waiting)
    if repeated := session.find_repeated(turn):
        return repeated
    if waiting and turn.key is not None and turn.key in {waiting.key, waiting.prompt_key}:
        turn.waiting = waiting.tool_calls
        return turn.replay(waiting.turn, waiting.reply, _marks_of(session))
    if answers:
        detail = f"These tool calls are pending; answer all of them: {', '.join(ids)}."
        raise AgentError("not_waiting", detail if ids else "")
    if not waiting:
        return None
    stage = await session.stage(turn)
    stage.marks["dropped"] = True
    return stage


async def _resume(session: Session, turn: Turn, answers: Answers, waiting: Waiting) -> Stage:
    turn.prompt = waiting.prompt
    turn.kept = waiting.kept
    turn.key = turn.key or waiting.key
    is_last = waiting.turn > session.number
    stage = await session.stage(turn, None if is_last else session.find(waiting.turn))
    stage.key = waiting.prompt_key
    reasons = answers.reasons_by_call
    if None in reasons.values():
        # Start no stream before the claim is saved: the store may still reject it.
        turn.has_begun = False
        await _claim(session, waiting)
        turn.has_begun = True
    turn.texts = [waiting.reply]
    stage.answers = adapter.answers(waiting.other, reasons)
    stage.resumed = waiting.messages
    stage.resumed_other = adapter.with_denials(waiting.other, reasons)
    return stage


async def _claim(session: Session, waiting: Waiting) -> None:
    """Remove the turn from the record before a tool runs, so that it runs at most once.

    Raises AgentError: `not_waiting` if the session has ended, `session_conflict` if it changed,
    or an error of the store.
    """
    last = cast(PendingData, session.last)
    if "pending" not in last:  # this process has claimed it
        CLAIMS.pop((session.id, last["claim"]), None)
        return
    snapshot, last = _committed(session)
    # A unique id distinguishes this claim from claims of other processes.
    claim = last["claim"] = uuid4().hex
    claiming = asyncio.create_task(session.claim(snapshot, last))
    claiming.add_done_callback(retrieve_error)
    try:
        claimed = await asyncio.shield(claiming)  # a cancelled turn runs no tool
    except BaseException:
        # The claim may be saved, now or later, but no tool has run: the next approval continues.
        with suppress(ValueError):  # too large for the cache
            CLAIMS[session.id, claim] = waiting
        await asyncio.wait({claiming})
        raise
    if claimed is None:
        raise AgentError("not_waiting")
    if claimed["app_data"].get("claim") != claim:
        raise AgentError("session_conflict")


def _committed(session: Session) -> tuple[Snapshot, PendingData]:
    """Return the committed snapshot and data, without the pending turn and its claim."""
    of_waiting = {"pending", "claim"}
    committed = {
        name: value for name, value in (session.last or {}).items() if name not in of_waiting
    }
    return cast(Snapshot, session.snapshot), cast(PendingData, committed)


async def hold(stage: Stage, snapshot: Snapshot, seconds: int) -> TurnResult:
    """Store a pending turn beside the committed turns."""
    turn = stage.turn
    session = stage.session
    if len({call.id for call in turn.waiting}) < len(turn.waiting):
        # One answer would apply to both calls.
        raise AgentError("model_failed", detail="two pending tool calls have the same id")
    suffix = uuid4().hex[:8]
    waiting = Waiting(
        turn=turn.number,
        key=turn.key,
        prompt_key=stage.key,
        prompt=turn.prompt,
        reply=turn.reply,
        calls=[
            Call(id=f"{call.id}.{suffix}", tool=call.name, input=call.input)
            for call in turn.waiting
        ],
        until=int(time.time()) + seconds,
        messages=snapshot["data"]["messages"][stage.at :],
        kept=turn.kept,
        other=without_messages(snapshot["data"]),
    )
    if session.last:
        before, last = _committed(session)
    else:
        before = snapshot | {"data": {"messages": []}}
        last = PendingData(actor=session.actor, turn=0, key=None, reply="", turns=[])
    last["pending"] = waiting.model_dump()
    # Raise instead of dropping older turns to make room for the pending turn.
    session.check_size(len(serialize(before | {"app_data": last})))
    await session.save(before, last)
    turn.waiting = waiting.tool_calls
    return turn.end("waiting", stage.marks | _marks_of(session))


def _marks_of(session: Session) -> Marks:
    return Marks(rolled_back=True) if session.is_rolled_back else Marks()


def call_id(id: str) -> str:
    """Return the model's id of a call, without the suffix of the approval."""
    return id.rpartition(".")[0]


def _read(last: PendingData | None) -> Waiting | None:
    """Return the pending turn if it is readable and has not expired."""
    try:
        return _in_time(Waiting.model_validate(last["pending"])) if last else None
    except (KeyError, ValidationError):
        return None


def _in_time(waiting: Waiting) -> Waiting | None:
    return waiting if time.time() < waiting.until else None
