"""The log of what clients asked for."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tests.agentcore.faults import EVERY, PATIENCE


@dataclass
class Call:
    """One request; `status` is 0 until it is answered, and stays so if it never is."""

    operation: str
    given: dict[str, Any]
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    status: int = 0
    error: str = ""
    fault: str = ""


class Calls:
    """The log of all requests, from before anything was done for them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: list[Call] = []

    def add(self, call: Call) -> None:
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()

    def of(self, operation: str = EVERY) -> list[Call]:
        with self._changed:
            return [call for call in self._calls if operation in (call.operation, EVERY)]

    def count(self, operation: str = EVERY) -> int:
        return len(self.of(operation))

    def wait_for(self, operation: str, count: int = 1, seconds: float = PATIENCE) -> list[Call]:
        """The calls of an operation, as soon as there are so many."""
        with self._changed:
            reached = self._changed.wait_for(lambda: self.count(operation) >= count, seconds)
        assert reached, f"{self.count(operation)} of {count} {operation} after {seconds} s"
        return self.of(operation)

    def clear(self) -> None:
        with self._changed:
            self._calls = []
