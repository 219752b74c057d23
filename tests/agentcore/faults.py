"""What a test makes go wrong at the service."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.agentcore.contract import OPERATIONS

EVERY = "*"
PATIENCE = 15.0

Where = Callable[[dict[str, Any]], bool]


@dataclass
class Fault:
    """One thing that goes wrong, `left` times after `spared` calls were served as usual.

    `reached` is set when a call has met it; release() ends the wait of those who are held.
    """

    kind: str
    operation: str
    left: float = math.inf
    spared: int = 0
    seconds: float = 0.0
    status: int = 0
    code: str = ""
    where: Where = lambda _: True
    reached: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        self.gate.wait(min(self.seconds, threading.TIMEOUT_MAX))

    def wait_reached(self) -> None:
        assert self.reached.wait(PATIENCE), f"no {self.operation} has met its {self.kind}"

    def release(self) -> None:
        self.gate.set()


class Faults:
    """The faults of one server. Those of an operation happen in the order they were added.

    `operation` is a name of AWS's, such as "CreateEvent", or EVERY. All methods take `times`
    (None: until clear()), `after` (how many calls are served before) and `where` (which inputs).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Fault] = []
        self._met: list[Fault] = []

    def throttle(self, operation: str, times: int | None = 1, **when: Any) -> Fault:
        """429 ThrottledException."""
        return self._add("error", operation, times, code="ThrottledException", **when)

    def deny(self, operation: str, times: int | None = None, **when: Any) -> Fault:
        """403 AccessDeniedException."""
        return self._add("error", operation, times, code="AccessDeniedException", **when)

    def error(self, operation: str, code: str, times: int | None = 1, **when: Any) -> Fault:
        """An error that the model knows for the operation, such as ServiceException (500)."""
        return self._add("error", operation, times, code=code, **when)

    def fail(self, operation: str, status: int = 503, times: int | None = 1, **when: Any) -> Fault:
        """A status with an HTML body, as what stands before a service answers."""
        return self._add("status", operation, times, status=status, **when)

    def slow(self, operation: str, seconds: float, times: int | None = 1, **when: Any) -> Fault:
        """Do the work and answer, `seconds` late or at release()."""
        return self._add("slow", operation, times, seconds=seconds, **when)

    def hold(self, operation: str, times: int | None = 1, **when: Any) -> Fault:
        """Do nothing until release(), then the work as usual."""
        return self.slow(operation, math.inf, times, **when)

    def hang(
        self, operation: str, seconds: float = math.inf, times: int | None = 1, **when: Any
    ) -> Fault:
        """Never do the work and never answer; the connection closes after `seconds`."""
        return self._add("hang", operation, times, seconds=seconds, **when)

    def cut(self, operation: str, times: int | None = 1, **when: Any) -> Fault:
        """Close the connection instead of doing the work."""
        return self._add("cut", operation, times, **when)

    def lose_reply(self, operation: str, times: int | None = 1, **when: Any) -> Fault:
        """Do the work, then close the connection without an answer."""
        return self._add("lose reply", operation, times, **when)

    def clear(self) -> None:
        """Nothing goes wrong any more; calls that are held go on."""
        with self._lock:
            faults = self._waiting + self._met
            self._waiting, self._met = [], []
        for fault in faults:
            fault.release()

    def take(self, operation: str, given: dict[str, Any]) -> Fault | None:
        """The fault that this call meets."""
        with self._lock:
            for fault in self._waiting:
                if fault.operation not in (operation, EVERY) or not fault.where(given):
                    continue
                if fault.spared:
                    fault.spared -= 1
                    continue
                fault.left -= 1
                if fault.left < 1:
                    self._waiting.remove(fault)
                self._met.append(fault)
                fault.reached.set()
                return fault
            return None

    def _add(
        self, kind: str, operation: str, times: int | None, after: int = 0, **more: Any
    ) -> Fault:
        if operation != EVERY and operation not in OPERATIONS:
            raise ValueError(f"AgentCore Memory has no {operation}")
        left = math.inf if times is None else times
        fault = Fault(kind, operation, left=left, spared=after, **more)
        with self._lock:
            self._waiting.append(fault)
        return fault
