"""The records of effects in a session: `app_data.records.effects` of its snapshot.

All languages and versions read this format. A scheduled call is removed when a turn has shown its
result. A call of `once` stays until other calls need its room.
"""

from hashlib import sha256
from itertools import count
from typing import Any, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from ..sessions.sessions import Records
from .functions import Kind, canonical

NAME = "effects"  # in the records of a session
SKEW_SECONDS = 5  # between the clocks of two processes
Status = Literal["scheduled", "started", "unknown", "done", "failed"]
FINAL = {"done", "failed"}


class Call(BaseModel):
    """A recorded call. Times are Unix seconds."""

    model_config = ConfigDict(extra="allow")

    key: str
    kind: Kind
    tool: str
    arguments: dict[str, Any]  # empty when the call is done
    digest: str  # of the tool and the arguments
    turn: int
    identity: str  # of the turn: "key " and its idempotency key, or "turn " and its number
    adopters: list[str] = []  # the identities of later turns that got the outcome
    wanted: bool = False  # whether the next identical call of `once` gets the outcome
    status: Status
    at: float  # when it was scheduled or started
    tried: float = 0  # the first try of a scheduled call, if it failed
    result: Any = None  # JSON; the reason if it failed
    owner: str = ""  # the process that runs a started call
    until: float = 0  # the end of its time limit

    @property
    def is_open(self) -> bool:
        """Whether the call is not final."""
        return self.status not in FINAL

    def is_of(self, identity: str) -> bool:
        """Whether a turn has made the call, or has got its outcome."""
        return identity == self.identity or identity in self.adopters

    def adopt(self, identity: str) -> None:
        """Record that a turn gets the outcome."""
        if not self.is_of(identity):
            self.adopters = [*self.adopters, identity]

    @property
    def size(self) -> int:
        """The number of bytes that count against MAX_EFFECT_BYTES."""
        return len(canonical([self.arguments, self.result]).encode(errors="replace"))


class Section(BaseModel):
    """The records of a session. `owner` may run the scheduled calls until the time `until`."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(default_factory=lambda: uuid4().hex)  # part of each key of `once`
    calls: list[Call] = []
    owner: str = ""
    until: float = 0
    open: int = 0  # scheduled calls

    @property
    def scheduled(self) -> list[Call]:
        """The calls to run, in order."""
        return [call for call in self.calls if call.status == "scheduled"]

    def find(self, key: str) -> Call | None:
        """Return the call with a key, or None."""
        return next((call for call in self.calls if call.key == key), None)

    def put(self, call: Call) -> None:
        """Add a call, or replace the call with its key."""
        for at, other in enumerate(self.calls):
            if other.key == call.key:
                self.calls[at] = call
                return
        self.calls.append(call)

    def remove(self, keys: set[str]) -> None:
        """Remove the calls with these keys."""
        self.calls = [call for call in self.calls if call.key not in keys]

    def commit(self, identity: str, used: list[str]) -> None:
        """Record that a turn ends with the outcomes of the calls with the keys `used`."""
        for call in self.calls:
            if call.kind == "once" and call.is_open:
                call.wanted = True
            elif call.kind == "once" and call.key in used:
                call.wanted = False
                call.adopt(identity)

    def is_of_other(self, owner: str, now: float) -> bool:
        """Whether another process may be running the scheduled calls."""
        return self.owner not in ("", owner) and now < self.until + SKEW_SECONDS

    def make_room(self, count: int, size: int, kept: set[str]) -> bool:
        """Drop results of `once`, the oldest first, until the limits hold; return whether they do.

        Only calls with a result may be dropped, except those with the keys `kept`. Results that a
        later call gets are dropped last.
        """
        excess = sum(call.size for call in self.calls) - size
        number = len(self.calls) - count
        dropped = set[str]()
        for call in sorted(self.calls, key=lambda call: call.wanted):
            if excess <= 0 and number <= 0:
                break
            if call.kind == "once" and not call.is_open and call.key not in kept:
                dropped.add(call.key)
                excess -= call.size
                number -= 1
        self.remove(dropped)
        return excess <= 0 and number <= 0


def read_section(records: Records) -> Section:
    """Return the effects in the records of a session."""
    return Section.model_validate(records.get(NAME, {}))


def digest_of(tool: str, arguments: str) -> str:
    """Return the digest of a call with canonical arguments."""
    return sha256(f"{tool}\n{arguments}".encode()).hexdigest()


def new_key(section: Section, identity: str, digest: str, used: list[str]) -> str:
    """Return the key of a new call of `once`: the same in each try of a turn, if it is free."""
    taken = {*used, *(call.key for call in section.calls)}
    keys = (_key_of(section, identity, digest, ordinal) for ordinal in count())
    return next(key for key in keys if key not in taken)


def _key_of(section: Section, identity: str, digest: str, ordinal: int) -> str:
    text = canonical([section.id, identity, digest, ordinal])
    return sha256(text.encode()).hexdigest()[:32]
