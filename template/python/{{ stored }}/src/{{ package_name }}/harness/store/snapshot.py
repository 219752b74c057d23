"""Validates stored snapshots before a turn continues from them, and reads their actor."""

import json
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ..sessions.sessions import find_turns, serialize
from .base import DurableStore

UNREADABLE = object()
NOTHING = object()
VERSIONS = ("1.0", "1")


class _TurnStart(BaseModel):
    model_config = ConfigDict(strict=True)

    at: int = Field(ge=0)
    key: str | None
    other: dict[str, Any] = {}


class _AppData(BaseModel):
    model_config = ConfigDict(strict=True)

    actor: str | None
    turn: int = Field(ge=0)
    key: str | None
    reply: str
    turns: list[_TurnStart] | None = None


class _Data(BaseModel):
    messages: list[dict[str, Any]]

    @field_validator("messages")
    @classmethod
    def _are_of_this_framework(cls, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        from .messages import are_messages  # imports the framework, which takes a second

        if messages and not are_messages(messages):
            raise ValueError("the messages come from another framework")
        return messages


class _Snapshot(BaseModel):
    scope: Literal["agent"] = "agent"
    schema_version: Literal["1.0", "1"]
    created_at: str = "1970-01-01T00:00:00Z"
    data: _Data
    app_data: _AppData

    @model_validator(mode="after")
    def _has_its_turns(self) -> Self:
        turns = self.app_data.turns
        end = len(self.data.messages)
        starts = [start.at for start in turns or []]
        is_known = self.app_data.turn > 0 if end else turns == []
        if not is_known or starts != sorted({*starts} & {*range(end)}):
            raise ValueError("the turns do not match the messages")
        return self


def read_snapshot(stored: bytes, max_bytes: int) -> bytes | None:
    """Return the snapshot with its default fields, or None if it is unreadable.

    The memory-collection specification allows missing fields and the version "1". A snapshot of
    more than `max_bytes` loses its oldest turns: the limit may have been higher at the last save.
    """
    snapshot: Any = parse(stored)
    try:
        read = _Snapshot.model_validate(snapshot)
    except ValidationError:
        return None
    envelope = {"scope": read.scope, "schema_version": "1.0", "created_at": read.created_at}
    if len(stored) > max_bytes:
        return _shorten(snapshot | envelope, max_bytes)
    if envelope.items() <= snapshot.items():
        return stored
    return json.dumps(snapshot | envelope, ensure_ascii=False).encode("utf-8", "replace")


def _shorten(snapshot: dict[str, Any], max_bytes: int) -> bytes:
    """Remove the oldest turns, if necessary all, until the snapshot fits into `max_bytes`."""
    data = snapshot["data"]
    last = snapshot["app_data"]
    messages = data["messages"]
    turns = last.get("turns")
    if turns is None:
        turns = find_turns(data)
    starts = [start["at"] for start in turns]
    front, *ends = [*starts, len(messages)]  # keep a summary before the first turn
    before = [0, *accumulate(len(serialize(message)) for message in messages)]
    excess = len(serialize(snapshot)) - max_bytes
    end = next((at for at in ends if before[at] - before[front] >= excess), None)
    if end is None:
        front = 0
        end = len(messages)
    kept = messages[:front] + messages[end:]
    later = [start | {"at": start["at"] - end + front} for start in turns if start["at"] >= end]
    last = last | {"turns": later}
    shortened = serialize(snapshot | {"data": data | {"messages": kept}, "app_data": last})
    if len(shortened) <= max_bytes:
        return shortened
    last |= {"key": None, "reply": ""}  # they belong to a removed turn
    return serialize(snapshot | {"data": data | {"messages": kept}, "app_data": last})


def without_pending(snapshot: bytes) -> bytes:
    """Return the snapshot without its pending turn, which needs a save before its tools run."""
    value = parse(snapshot)
    value["app_data"].pop("pending", None)
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def is_same(stored: bytes, snapshot: bytes) -> bool:
    """Return whether both are the same JSON value; a store may add an empty `state`."""
    return bool(_with_state(parse(stored)) == _with_state(parse(snapshot)))


def parse(text: bytes, parse_float: Callable[[str], float] = float) -> Any:
    """Return the value of a JSON text in UTF-8, or None if the text is invalid."""
    try:
        # int() rejects NaN, which JSON does not allow.
        return json.loads(text.decode(), parse_constant=int, parse_float=parse_float)
    except (ValueError, RecursionError):
        return None


def _with_state(value: Any) -> Any:
    try:
        return value | {"data": {"state": {}} | value["data"]}
    except (TypeError, KeyError):
        return value


def foreign_format(stored: bytes) -> str | None:
    """Return the reason if another program or a newer version wrote the snapshot, or None."""
    from .messages import are_messages

    match parse(stored):
        case {"schema_version": str(version)} if version not in VERSIONS:
            return "its schema version is not 1.0"
        case {"scope": str(scope)} if scope != "agent":
            return "it does not belong to a single agent"
        case {"data": {"messages": [{"role": str()}, *_] as messages}, **others}:
            if others.get("app_data") is None:
                return "it has no record of the turns"
            if not are_messages(messages):
                return "its messages come from another framework"
    return None


async def owner_of(store: DurableStore, session_id: str) -> object:
    """Return the actor in the latest readable snapshot, or UNREADABLE; NOTHING without data."""
    stored = await store.load(session_id)
    owner = actor_in(stored.snapshot) if stored else UNREADABLE
    if owner is not UNREADABLE:
        return owner
    checkpoints = await store.checkpoints(session_id)
    for id in reversed(checkpoints):
        owner = actor_in(await store.load_checkpoint(session_id, id) or b"")
        if owner is not UNREADABLE:
            return owner
    is_empty = not (stored or checkpoints or await store.quarantined(session_id))
    return NOTHING if is_empty else UNREADABLE


def actor_in(snapshot: bytes) -> Any:
    """Return the actor in a snapshot, even if other parts are invalid."""
    try:
        return parse(snapshot)["app_data"]["actor"]
    except (TypeError, KeyError):
        return UNREADABLE
