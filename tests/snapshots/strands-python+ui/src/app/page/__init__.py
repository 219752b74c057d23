"""The page at /: its files, and headers that let it load and call nothing but this server."""

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..agent import TOOLS
from ..requests import authorize, refuse_foreign
from ..runtime import Runtime

TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes(runtime: Runtime) -> list[Route]:
    """Return the routes of the page if UI is 1; it needs no token, the API that it calls does."""

    def sending(file: Path) -> Callable[[Request], Awaitable[Response]]:
        content, media_type = file.read_bytes(), TYPES[file.suffix]
        headers = {**HEADERS, "ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"'}

        async def send(request: Request) -> Response:
            refuse_foreign(request, runtime)
            if request.headers.get("If-None-Match") == headers["ETag"]:
                return Response(status_code=304, headers=headers)
            return Response(content, headers=headers, media_type=media_type)

        return send

    async def agent(request: Request) -> Response:
        refuse_foreign(request, runtime)
        authorize(request, runtime)
        tools = TOOLS
        name = "tool_name"
        names = [getattr(tool, name, None) or getattr(tool, "__name__", "") for tool in tools]
        body = {"model": runtime.settings.model, "tools": [name for name in names if name]}
        return JSONResponse(body, headers=HEADERS)

    files = [one for one in Path(__file__).parent.iterdir() if one.suffix in TYPES]
    names = {one: "" if one.name == "index.html" else one.name for one in files}
    routes = [Route(f"/{names[one]}", sending(one)) for one in files]
    return [*routes, Route("/agent.json", agent)] if runtime.settings.ui else []
