"""The page at /: its files, and headers that let it load and call nothing but this server."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..requests import refuse_foreign
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

        async def send(request: Request) -> Response:
            refuse_foreign(request, runtime)
            return Response(content, headers=HEADERS, media_type=media_type)

        return send

    files = [one for one in Path(__file__).parent.iterdir() if one.suffix in TYPES]
    names = {one: "" if one.name == "index.html" else one.name for one in files}
    return [Route(f"/{names[one]}", sending(one)) for one in files if runtime.settings.ui]
