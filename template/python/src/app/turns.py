"""The turns that run in this process: how many may, and how they end."""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request

from .contract import AgentError


class Turns:
    """The turns that run or wait in this process, and the reads of bodies and sessions."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        self.changed = int(time.time())
        self.is_draining = False
        self._reads = 0

    def check_room(self, max_turns: int) -> None:
        """Raise AgentError when no turn may start: `draining` or `server_busy`."""
        if self.is_draining:
            raise AgentError("draining")
        if len(self.tasks) + self._reads >= max_turns:
            raise AgentError("server_busy")

    @contextmanager
    def reading(self, max_turns: int) -> Iterator[None]:
        """Take the place of a turn while a body or a session is read, or raise AgentError."""
        self.check_room(max_turns)
        self._reads += 1
        try:
            yield
        finally:
            self._reads -= 1

    def start(self, work: Coroutine[Any, Any, Any], request: Request) -> asyncio.Task[Any]:
        """Start a turn, or the end of a session; it is cancelled when the client leaves."""
        task = asyncio.create_task(work)
        self._change(task)
        task.add_done_callback(self._change)
        watch = asyncio.create_task(_client_left(request))
        watch.add_done_callback(lambda _: task.cancel())
        task.add_done_callback(lambda _: watch.cancel())
        return task

    def _change(self, task: asyncio.Task[Any]) -> None:
        self.tasks ^= {task}
        self.changed = int(time.time())

    async def drain(self, grace_seconds: float) -> None:
        """Refuse new turns, let running ones finish within this time, then cancel them."""
        self.is_draining = True
        while self.tasks:
            await asyncio.wait(self.tasks, timeout=grace_seconds)
            for task in self.tasks:
                task.cancel()


async def _client_left(request: Request) -> None:
    """Wait until the client has left; its body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
