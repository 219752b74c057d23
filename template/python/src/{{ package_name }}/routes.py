"""Routes of your own, besides POST /invocations and GET /ping. Updates leave this file alone."""

from .harness import Handler, Route

# By method and path. Host, Origin, API_TOKEN and actor are checked before a handler is called with
# a Starlette request and the Runtime; it returns a Starlette response. See docs/routes.md.
ROUTES: dict[str, Handler | Route] = {}
