"""The capability for turns that continue after their client has left."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from .. import runtime as core
from ..capability import Capability, Routes, Runtime
from ..contract import SESSION_ID, AgentError, Turn
from ..http.requests import read_actor, read_header
from ..modules import LoadModules
from .detached import RUNNING, Detaching
from .readers import follow
from .recordings import Format, Recordings
from .settings import BackgroundSettings


class Background(Capability):
    """Runs turns without their clients, and serves their events."""

    settings: BackgroundSettings

    def __init__(
        self, settings: BackgroundSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self.recordings = Recordings(settings)
        self.formats: dict[str, Format] = {"/invocations": "events"}
        self._middleware: Detaching | None = None

    def wrap(self, app: ASGIApp) -> ASGIApp:
        self._middleware = Detaching(app, self.recordings, self.formats)
        return self._middleware

    async def open(self, runtime: Runtime) -> None:
        if self._middleware:  # `chat` has none
            self._middleware.runtime = cast(core.Runtime, runtime)

    def routes(self) -> Routes:
        return {"GET /invocations/{session}/events": self._follow}

    @asynccontextmanager
    async def around(self, turn: Turn) -> AsyncIterator[None]:
        if detached := RUNNING.get():
            detached.begin(turn)
        yield

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        """Accept the turn: it has passed the checks of its session."""
        detached = RUNNING.get()
        if detached and detached.core_turn is turn:
            detached.turn.accept()

    def session_ended(self, session_id: str) -> None:
        self.recordings.forget(session_id)

    async def _follow(self, request: Request, runtime: core.Runtime) -> Response:
        session_id = request.path_params["session"]
        request.state.session_id = session_id
        if not re.fullmatch(SESSION_ID, session_id):
            raise AgentError("invalid_session_id")
        key = (session_id, read_actor(request, runtime))
        return await follow(runtime, self.recordings, key, read_header(request, "last-event-id"))
