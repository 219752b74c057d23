"""GET and DELETE /api/chat/{id}/stream: useChat resumes and stops its background turns."""

import re
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from ..capability import Capability, Routes
from ..contract import SESSION_HEADER, AgentError
from ..http.chat_route import UiEvents
from ..modules import LoadModules
from ..runtime import Runtime
from ..settings import CoreSettings
from .capability import Background
from .readers import (
    EventStream,
    add_turn_id,
    check_reader,
    find,
    may_run_elsewhere,
    read_key,
    stop,
)
from .recordings import Key


class ChatStreams(Capability):
    """Makes each turn of POST /api/chat a background turn."""

    def __init__(
        self, settings: CoreSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        background = Background.find(before)
        background.formats["/api/chat"] = "chat"
        self._recordings = background.recordings

    def routes(self) -> Routes:
        path = "/api/chat/{id:path}/stream"
        return {f"GET {path}": self._resume, f"DELETE {path}": self._stop}

    async def _resume(self, request: Request, runtime: Runtime) -> Response:
        key = _read_key(request, runtime)
        recording = await find(runtime, self._recordings, key)
        if recording is None:
            await runtime.sessions.read(*key)  # another actor's session is an error
        if recording is None or recording.format != "chat" or recording.is_ended:
            return _no_content(key)
        if recording.first > 1:  # its start was dropped: only say that it runs
            response = _no_content(key)
            add_turn_id(response, recording)
            return response
        check_reader(self._recordings, recording, 0)
        seconds = runtime.settings.keep_alive_seconds
        stream = EventStream(recording, 0, seconds, is_numbered=False)
        stream.headers.update({**UiEvents.headers, SESSION_HEADER: key[0]})
        add_turn_id(stream, recording)
        return stream

    async def _stop(self, request: Request, runtime: Runtime) -> Response:
        key = _read_key(request, runtime)
        is_stopped = await stop(runtime, self._recordings, key)
        if not is_stopped and may_run_elsewhere(runtime, self._recordings):
            raise AgentError("turn_elsewhere")
        return _no_content(key)


def _read_key(request: Request, runtime: Runtime) -> Key:
    session_id = re.sub("^__(?=LOCALID_)", "", request.path_params["id"])  # of assistant-ui
    return read_key(request, runtime, session_id)


def _no_content(key: Key) -> Response:
    headers = {"Cache-Control": "no-store", SESSION_HEADER: key[0]}
    return Response(status_code=204, headers=headers)
