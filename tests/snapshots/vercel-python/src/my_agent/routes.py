"""Routes of your own, besides POST /invocations and GET /ping. Updates leave this file alone."""

from .harness import Handler

# By method and path. Host, Origin and API_TOKEN are checked before a handler is called with a
# Starlette request and the Runtime; it returns a Starlette response.
ROUTES: dict[str, Handler] = {}
