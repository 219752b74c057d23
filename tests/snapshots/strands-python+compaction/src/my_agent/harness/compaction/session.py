"""A session in which a summary takes the place of the messages that it no longer holds."""

from collections.abc import Callable
from typing import Any, Protocol

from ..contract import Turn
from ..sessions.sessions import LastTurn, Session, Snapshot, serialize


class Compactor(Protocol):
    async def compact(self, turn: Turn, dropped: list[Any], at: int, turns: int) -> list[Any]:
        """Return what takes the place of dropped messages, of which the turns begin at `at`."""


class CompactedSession(Session):
    """A session whose summary stands in front of its turns: the first one begins at 2."""

    compactor: Compactor

    def find_cut(self, fits: Callable[[int], bool]) -> int:
        """Return where the first turn that fits begins; if none does, all become the summary.

        A single turn that is too large stays: each of its kind would need a summary.
        """
        starts = [start["at"] for start in self.turns]
        end = starts[0] if len(starts) == 1 else len(self.data["messages"])
        return next(filter(fits, starts), end)

    async def shorten(self, turn: Turn, end: int) -> None:
        """Drop the oldest turns, and put a summary of them in front of the others."""
        dropped = self.data["messages"][:end]
        at = self.turns[0]["at"] if self.turns else len(self.data["messages"])
        await super().shorten(turn, end)
        if dropped:
            last = turn.number - 1 - len(self.turns)
            summary = await self.compactor.compact(turn, dropped, at, last)
            self.data["messages"] = summary + self.data["messages"]
            self.turns = [{**start, "at": start["at"] + len(summary)} for start in self.turns]

    async def save(
        self, snapshot: Snapshot, last: LastTurn, saved: Callable[[], None] = lambda: None
    ) -> bytes:
        """Save; if it is too large, without its oldest turns, but with the summary if it fits."""
        most, turns = self._sessions.store.max_bytes, last["turns"]
        while len(turns) > 1 and (front := turns[0]["at"]):
            if len(serialize(snapshot | {"app_data": last})) <= most:
                break
            data, end = snapshot["data"], turns[1]["at"]
            messages = data["messages"][:front] + data["messages"][end:]
            snapshot = snapshot | {"data": data | {"messages": messages}}
            turns = [{**start, "at": start["at"] - end + front} for start in turns[1:]]
            last["turns"] = turns
        return await super().save(snapshot, last, saved)
