"""The end of a session: turns that wait for others are recorded then."""

from collections.abc import Callable, Sequence

from ..capability import Capability, find_session_class
from ..modules import LoadModules
from ..sessions.sessions import Session
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

    def __init__(
        self, settings: CoreSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        long_term = LongTermMemory.find(before)
        flush = staticmethod(lambda id: long_term.recorder.flush(id))
        bases = (RecordedSession, find_session_class(before))
        self._session_class = type("Recorded", bases, {"flush": flush})

    def session_class(self) -> type[Session]:
        return self._session_class
