"""The page at /: its files, with headers that restrict it to this server."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..capability import Capability, Routes
from ..contract import AgentError
from ..findings import Finding, diagnostic
from ..http.chat_route import ChatRoute
from ..models.advice import explain
from ..modules import LoadModules, tool_name
from ..runtime import Runtime
from .settings import PageSettings

FOLDER = Path(__file__).parent
TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
STOP = "DELETE /api/chat/{id:path}/stream"  # of turns that continue after their page has left
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Page(Capability):
    """Serves the page if UI is 1. The page needs no token; the API that it calls does."""

    settings: PageSettings

    def __init__(
        self, settings: PageSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        if settings.ui:
            ChatRoute.find(before).advise = self._advise

    def check(self) -> list[Finding]:
        if not self.settings.ui or self.settings.is_loopback or self.settings.api_token:
            return []
        problem = f"The page on HOST {self.settings.host} needs API_TOKEN"
        return [diagnostic("SET-UI", f"{problem}: other machines can reach it.")]

    def describe(self, address: str) -> list[str]:
        if not self.settings.ui:
            return []
        return ["Page: " + re.sub(r"//(0\.0\.0\.0|\[::\])", "//localhost", address) + "/"]

    def public_routes(self) -> Routes:
        files = [path for path in FOLDER.iterdir() if path.suffix in TYPES]
        names = {path: "" if path.name == "index.html" else path.name for path in files}
        return {f"GET /{names[path]}": _sender(path) for path in files} if self.settings.ui else {}

    def routes(self) -> Routes:
        return {"GET /agent.json": _describe_agent} if self.settings.ui else {}

    def _advise(self, failure: AgentError) -> str:
        """Explain an error to users of this machine; refer other users to the log."""
        settings = self.settings
        has_detail = bool(failure.detail)
        is_open = settings.allowed_hosts or settings.allowed_origins
        if settings.is_loopback and not is_open and (has_detail or failure.__cause__):
            return f" {explain(failure, self.load().model).rstrip()}"
        is_logged = has_detail or failure.type == "internal_error"
        return " The server's log has the reason." if is_logged else ""


def _sender(file: Path) -> Callable[[Request, Runtime], Awaitable[Response]]:
    content = file.read_bytes()
    media_type = TYPES[file.suffix]
    headers = {**HEADERS, "ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"'}

    async def send(request: Request, _: Runtime) -> Response:
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)

    return send


async def _describe_agent(_: Request, runtime: Runtime) -> Response:
    body = {
        "model": runtime.settings.model,
        "tools": [tool_name(tool) for tool in runtime.tools()],
        "resumes": any(STOP in capability.routes() for capability in runtime.capabilities),
    }
    return JSONResponse(body, headers=HEADERS)
