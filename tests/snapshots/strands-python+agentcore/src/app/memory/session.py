"""The end of a session: turns that wait for others are recorded then."""

from collections.abc import Callable, Sequence

from ..capability import Capability
from ..sessions import Session
from ..settings import CoreSettings
from .long_term import LongTermMemory


class RecordedSession(Session):
    """A session whose waiting turns are recorded when it ends; `flush` takes its id."""

    flush: Callable[[str], None]

    async def end(self) -> None:
        await super().end()
        self.flush(self._id)


class RecordedSessions(Capability):
    """Makes the sessions of the capabilities before this one those that are recorded at the end."""

    def __init__(self, settings: CoreSettings, before: Sequence[Capability]) -> None:
        super().__init__(settings, before)
        self._before, self._long_term = before, LongTermMemory.find(before)

    def session_class(self) -> type[Session]:
        classes = [capability.session_class() for capability in self._before]
        base = next((kind for kind in reversed(classes) if kind is not Session), Session)
        flush = staticmethod(lambda id: self._long_term.recorder.flush(id))
        return type("Recorded", (RecordedSession, base), {"flush": flush})
