"""The running turns of this process: their limit and their drain."""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ..contract import DRAINING, AgentError
from ..deadline import retrieve_error

Result = TypeVar("Result")


class Turns:
    """The running and queued turns of this process, and the pending reads."""

    def __init__(self, max_turns: int) -> None:
        self._max_turns = max_turns
        self.tasks: set[asyncio.Task[Any]] = set()
        self.is_draining = False
        self._reads = 0
        self._status = ""
        self._since = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count a read of a body or a session as a turn. Raises the errors of `start`."""
        self._check_room()
        self._reads += 1
        try:
            yield
        finally:
            self._reads -= 1

    def start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Run a turn, or end a session.

        Raises AgentError if no turn may start: `draining` or `server_busy`.
        """
        try:
            self._check_room()
        except AgentError:
            work.close()
            raise
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._remove)
        return task

    def _remove(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        retrieve_error(task)

    def _check_room(self) -> None:
        if self.is_draining:
            raise AgentError("draining")
        if len(self.tasks) + self._reads >= self._max_turns:
            raise AgentError("server_busy")

    def since(self, status: str) -> int:
        """Return when the status last changed, in Unix seconds."""
        if status != self._status:
            self._status = status
            self._since = int(time.time())
        return self._since

    async def drain(self, grace_seconds: float) -> None:
        """Reject new turns; cancel running turns after the grace period."""
        self.is_draining = True
        while self.tasks:
            await asyncio.wait(self.tasks, timeout=grace_seconds)
            for task in self.tasks:
                task.cancel(*DRAINING)
