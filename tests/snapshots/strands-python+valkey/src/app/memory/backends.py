"""What a session store can do, whatever keeps it, and how it says that it failed."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Stored:
    """What a store has of a session. Revisions are never used twice; None is one that it lacks."""

    revision: str | None
    snapshot: bytes | None  # None: still the one of the revision that the caller knows


class Conflict(Exception):
    """What is stored is not of the expected revision; nothing was changed."""


class Unavailable(Exception):
    """The store did not do it; `is_certain` when nothing can have been changed."""

    def __init__(self, what: str, *, is_certain: bool = False) -> None:
        super().__init__(what)  # without secrets: it is logged
        self.is_certain = is_certain


class Unsupported(Exception):
    """The store has no such operation; the text says so to its owner."""


class Backend(Protocol):
    """The sessions of one agent in one collection. Every call is bounded in time.

    Each raises Unavailable. A checkpoint is a UUIDv7 in lower case; they sort by time.
    """

    contact: str  # what it contacts, without secrets

    async def load(
        self, session_id: str, known: str | None = None, checkpoint: str | None = None
    ) -> Stored | None:
        """What is stored last, or in a checkpoint; None when there is nothing."""

    async def save(
        self,
        session_id: str,
        snapshot: bytes,
        expected: str | None,
        checkpoint: str | None = None,
    ) -> str | None:
        """Replace what has the expected revision (None: nothing yet), and return the new one.

        With `checkpoint` the snapshot is then kept under that id too. Raises Conflict.
        """

    async def keep(self, session_id: str, snapshot: bytes, checkpoint: str) -> None:
        """Keep what was saved under that id too, if `save` has not; failing is a warning."""

    async def set_aside(self, session_id: str, revision: str | None) -> str:
        """Put what is stored last where nothing overwrites it, and return its name there.

        After that `load` finds nothing. Raises Conflict.
        """

    async def checkpoints(self, session_id: str) -> list[str]:
        """The ids of the checkpoints, oldest first."""

    async def asides(self, session_id: str) -> list[str]:
        """The names of what was set aside."""

    async def end(self, session_id: str) -> None:
        """Delete all of the session, known or not."""

    async def sessions(self) -> list[str]:
        """The ids of all sessions. Raises Unsupported."""

    async def close(self) -> None:
        """Close what is open."""
