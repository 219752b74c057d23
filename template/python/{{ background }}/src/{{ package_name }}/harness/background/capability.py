"""The capability for turns that continue after their client has left."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from ..capability import Capability, Routes
from ..contract import NO_SNIFF, SESSION_HEADER, AgentError, Turn
from ..http.multipart import FORM_TYPE
from ..http.requests import parse_body, read_header
from ..modules import LoadModules, Route
from ..runtime import Runtime
from .detached import CONTROL_PATH, DETACHED, MODES, Detaching
from .failures import Format
from .readers import follow, read_key, stop
from .recordings import Recordings
from .settings import BackgroundSettings

OTHER_FIELDS = {"prompt", "replace_turn", "fork", "end_session"}


class Background(Capability):
    """Runs turns without their clients, and serves their events."""

    settings: BackgroundSettings

    def __init__(
        self, settings: BackgroundSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self.recordings = Recordings(settings)
        self.formats: dict[str, Format] = {"/invocations": "events", "/invocations/": "events"}

    @property
    def wraps_last(self) -> bool:
        """Wrap last: wrappers of the project check follow and stop, and can change the path."""
        return True

    def wrap(self, app: ASGIApp) -> ASGIApp:
        return Detaching(app, self.recordings, self.formats)

    def routes(self) -> Routes:
        return {
            "GET /invocations/{session:path}/events": self._follow,
            f"POST {CONTROL_PATH}": Route(self._control, types=("application/json", FORM_TYPE)),
        }

    @asynccontextmanager
    async def around(self, turn: Turn) -> AsyncIterator[None]:
        if detached := DETACHED.get():
            detached.begin(turn)
        yield

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        """Accept the turn: it has passed the checks of its session."""
        detached = DETACHED.get()
        if detached and detached.core_turn is turn:
            detached.accept()

    def session_ended(self, session_id: str) -> None:
        self.recordings.forget(session_id)

    async def _follow(self, request: Request, runtime: Runtime) -> Response:
        key = read_key(request, runtime, request.path_params["session"])
        return await follow(runtime, self.recordings, key, read_header(request, "last-event-id"))

    async def _control(self, request: Request, runtime: Runtime) -> Response:
        """Follow or stop a turn: the bodies of POST /invocations that run no turn."""
        session_id = read_header(request, SESSION_HEADER)
        content_type = read_header(request, "content-type") or ""
        body = parse_body(await request.body(), content_type, self.settings)
        if session_id is None:
            raise AgentError("invalid_request", "Send the session id in the session header.")
        key = read_key(request, runtime, session_id)
        if not isinstance(body, dict):
            raise AgentError("invalid_request", "The body must be an object.")
        wanted = [name for name in MODES if body.get(name, False) is not False]
        is_turn = runtime.read_request(body, session_id) or not OTHER_FIELDS.isdisjoint(body)
        if len(wanted) != 1 or is_turn or body[wanted[0]] is not True:
            message = "Send follow or stop as true, in a separate request."
            raise AgentError("invalid_request", message)
        if wanted == ["stop"]:
            is_stopped = await stop(runtime, self.recordings, key)
            result = {"session_id": session_id, "stopped": is_stopped}
            return JSONResponse(result, headers={**NO_SNIFF, SESSION_HEADER: session_id})
        last_id = read_header(request, "last-event-id") or body.get("last_event_id")
        return await follow(runtime, self.recordings, key, last_id)
