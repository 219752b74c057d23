"""Effects that happen once, as a capability."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ..capability import Capability, Runtime
from ..contract import Data, Turn
from ..findings import Finding, diagnostic
from ..modules import LoadModules
from ..sessions.session_store import InProcess
from ..sessions.sessions import LastTurn, Session, Stage
from .calls import TurnCalls
from .functions import FUNCTIONS, IN_TURN
from .outbox import Outbox, kept_of
from .records import SKEW_SECONDS
from .settings import EffectSettings

NOT_STORED = "Sessions are in this process: a restart loses open effects. Choose a session store."


class Effects(Capability):
    """Runs the calls of `@after_commit` and `@once`."""

    settings: EffectSettings

    def __init__(
        self, settings: EffectSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self._before = before
        self._turns: dict[Turn, TurnCalls] = {}
        self.outbox = Outbox(settings)

    @property
    def is_busy(self) -> bool:
        return self.outbox.is_busy

    @property
    def _is_stored(self) -> bool:
        stores = (capability.session_store() for capability in self._before)
        return not isinstance(next(filter(None, stores), None), InProcess | None)

    def check(self) -> list[Finding]:
        if self._is_stored or not FUNCTIONS:
            return []
        return [diagnostic("EFFECTS", NOT_STORED, "warning")]

    def describe(self, address: str) -> list[str]:
        return [] if self._is_stored or not FUNCTIONS else [f"Warning: {NOT_STORED}"]

    async def open(self, runtime: Runtime) -> None:
        self.outbox.sessions = runtime.sessions

    async def close(self) -> None:
        await self.outbox.close(self.settings.shutdown_grace_seconds)

    @asynccontextmanager
    async def around(self, turn: Turn) -> AsyncIterator[None]:
        """After a commit, send the results that the turn has shown to the model."""
        try:
            yield
            calls = self._turns.get(turn)
            if calls and turn.outcome == "committed":
                for call in calls.shown:
                    value = {"key": call.key, "tool": call.tool, "status": call.status}
                    await turn.emit(Data("effect", {**value, "result": call.result}))
        finally:
            self._turns.pop(turn, None)
            self.outbox.end(turn)

    async def turn_begun(self, stage: Stage) -> None:
        self.outbox.begin(stage)
        calls = TurnCalls(self.outbox, stage)
        self._turns[stage.turn] = calls
        IN_TURN.set(calls)
        if self.outbox.index and kept_of(stage.turn)["scheduled"]:  # it waited for an approval
            await self.outbox.index.add(stage.session.id, SKEW_SECONDS)

    def before_save(self, session: Session, last: LastTurn, turn: Turn | None) -> None:
        calls = self._turns.get(turn) if turn else None
        shown = {call.key for call in calls.shown} if calls else set[str]()
        self.outbox.update(session, last, turn, shown)

    def committed(self, turn: Turn, messages: list[Any]) -> None:
        if kept_of(turn)["scheduled"]:
            self.outbox.watch(turn.session_id)
