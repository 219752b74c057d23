"""What the service keeps, and what its operations share."""

import hashlib
import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

DAY = 86_400.0
EMPTY_SESSION = DAY  # how long a session without events is listed

Given = dict[str, Any]


class ServiceError(Exception):
    """An error of AWS's model, by its name there."""

    def __init__(self, code: str, message: str, **members: Any) -> None:
        super().__init__(message)
        self.code = code
        self.members = {"message": message, **members}


def invalid(field_name: str, message: str, reason: str = "FieldValidationFailed") -> ServiceError:
    fields = [{"name": field_name, "message": message}]
    text = f"Value at '{field_name}' failed to satisfy constraint: {message}"
    return ServiceError("ValidationException", text, reason=reason, fieldList=fields)


class Clock:
    """The time of day in seconds, which a test can put forward."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> float:
        return time.time() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += seconds


@dataclass
class Event:
    id: str
    actor: str
    session: str
    time: datetime
    payload: list[Given]
    branch: Given
    metadata: Given
    expires: float


@dataclass
class Record:
    id: str
    text: str
    strategy: str
    namespace: str  # normalised: /a/b/
    created: float
    visible: float
    timestamp: datetime
    metadata: Given
    days: int | None = None
    expires: float = float("inf")
    words: frozenset[str] = frozenset()


@dataclass
class Session:
    actor: str
    id: str
    created: float
    emptied: float


@dataclass
class Memory:
    """One memory resource; `description` is what the control plane says of it."""

    id: str
    description: Given
    active: float
    events: dict[str, Event] = field(default_factory=dict)
    sessions: dict[tuple[str, str], Session] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    tokens: dict[tuple[str, str], tuple[str, Given]] = field(default_factory=dict)

    @property
    def strategies(self) -> list[Given]:
        found: list[Given] = self.description["strategies"]
        return found


class State:
    """All memories, and what every operation needs. `counts` says what extraction did."""

    def __init__(self, extraction_delay: float = 0.0, creation_delay: float = 0.0) -> None:
        self.extraction_delay, self.creation_delay = extraction_delay, creation_delay
        self.frail_tokens = False  # whether the token of a page dies with the row before it
        self.clock = Clock()
        self.counts: Counter[str] = Counter()
        self.memories: dict[str, Memory] = {}
        self.lock = threading.RLock()
        self._numbers = itertools.count(1)

    def unique(self, length: int) -> str:
        """Hex digits that no other call gets, and that do not say which was first."""
        return hashlib.sha256(b"%d" % next(self._numbers)).hexdigest()[:length]

    def find(self, given: Given) -> Memory:
        """The memory that a request is about, by id or ARN."""
        name = given["memoryId"].rpartition("/")[2]
        memory = self.memories.get(name)
        if memory is None:
            raise ServiceError("ResourceNotFoundException", f"Memory not found: {name}")
        return memory

    def once(self, memory: Memory, operation: str, given: Given) -> Given | None:
        """The reply to an earlier request with the same token; None for a new one.

        The service ignores a token's second request whatever is in it; `counts` tells them apart.
        """
        token = given.get("clientToken")
        if token is None or (operation, token) not in memory.tokens:
            return None
        content, reply = memory.tokens[operation, token]
        self.counts["repeated" if content == repr(given) else "repeated with other content"] += 1
        return reply

    def remember(self, memory: Memory, operation: str, given: Given, reply: Given) -> Given:
        if "clientToken" in given:
            memory.tokens[operation, given["clientToken"]] = (repr(given), reply)
        return reply


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(round(seconds, 3), UTC)
