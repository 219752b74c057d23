"""Routes of your own, besides POST /invocations and GET /ping. Updates leave this file alone."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from .harness.runtime import Runtime

Handler = Callable[[Request, Runtime], Awaitable[Response]]

# By method and path. Host, Origin and API_TOKEN are checked before a handler is called.
ROUTES: dict[str, Handler] = {}
