"""A pool of connections to SQLite. The drivers of other databases bring their own."""

import asyncio
import sqlite3
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

Value = TypeVar("Value")

CONNECTIONS = 4
PATIENCE_SECONDS = 10


class Pool:
    """Connections to a file, each of which runs one transaction at a time."""

    def __init__(self, path: str) -> None:
        self._idle = SimpleQueue[sqlite3.Connection]()
        for _ in range(CONNECTIONS):
            self._idle.put(sqlite3.connect(path, check_same_thread=False))

    async def run(self, work: Callable[[sqlite3.Connection], Value]) -> Value:
        """Run work in a transaction. A turn that is cancelled meanwhile leaves it to end."""
        return await asyncio.to_thread(self._run, work)

    async def close(self) -> None:
        """Disconnect when no transaction is running."""
        for _ in range(CONNECTIONS):
            connection = await asyncio.to_thread(self._idle.get)
            connection.close()

    def _run(self, work: Callable[[sqlite3.Connection], Value]) -> Value:
        connection = self._idle.get(timeout=PATIENCE_SECONDS)
        try:
            with connection:
                return work(connection)
        finally:
            self._idle.put(connection)
