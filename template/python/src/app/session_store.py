"""Where committed snapshots live: the protocol of a session store, and the one in memory."""

from dataclasses import dataclass
from typing import Protocol

from cachetools import TTLCache

from .settings import Settings


@dataclass(frozen=True)
class Stored:
    """A snapshot as a store holds it: JSON in UTF-8, and the revision of that save.

    Revisions are unique. None: the store has no revisions.
    """

    revision: str | None
    snapshot: bytes


class SessionStore(Protocol):
    """Where committed snapshots live. Each method raises AgentError when the store fails."""

    async def load(self, session_id: str) -> Stored | None:
        """Return what was saved last, or None."""

    async def save(self, session_id: str, snapshot: bytes, expected: str | None) -> str | None:
        """Replace what has the `expected` revision (None: nothing), and return the new one.

        Raises and changes nothing where that is not what is stored. A cancel cannot interrupt it.
        """

    async def end(self, session_id: str) -> None:
        """Delete the session, known or not."""


class InProcess:
    """A SessionStore in memory; the least recently used session is forgotten first.

    It has no revisions: the queue of a session lets one turn at a time change it.
    """

    def __init__(self, settings: Settings) -> None:
        capacity, idle = settings.session_capacity, settings.session_idle_seconds
        self._entries: TTLCache[str, Stored] = TTLCache(capacity, idle)

    async def load(self, session_id: str) -> Stored | None:
        stored = self._entries.get(session_id)
        if stored is not None:
            self._entries[session_id] = stored  # restarts its idle time
        return stored

    async def save(self, session_id: str, snapshot: bytes, expected: str | None) -> str | None:
        self._entries[session_id] = Stored(None, snapshot)
        return None

    async def end(self, session_id: str) -> None:
        self._entries.pop(session_id, None)
