"""Your HTTP routes, besides POST /invocations and GET /ping. Updates keep your edits."""

from .harness import Handler, Route

# Handlers by method and path. The harness checks Host, Origin, API_TOKEN and actor first. A handler
# takes a Starlette request and the Runtime, and returns a Starlette response. See docs/routes.md.
ROUTES: dict[str, Handler | Route] = {}
