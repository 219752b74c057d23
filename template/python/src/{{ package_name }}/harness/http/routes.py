"""Checks the routes of the project and of capabilities."""

import re
from collections.abc import Mapping
from inspect import iscoroutinefunction, isfunction

from starlette.routing import compile_path

from ..findings import Finding, diagnostic
from ..modules import Handler, Route
from ..project import Project

HARNESS_ROUTES = {"POST /invocations", "POST /invocations/", "GET /ping"}


def check_own_routes(module: object) -> list[Finding]:
    """Return findings about ROUTES of the module `routes`."""
    file = Project.name_of(Project.package / "routes.py")
    routes = getattr(module, "ROUTES", None)
    if routes is None:
        return [diagnostic("ROUTES", "ROUTES is missing: define it.", file=file)]
    return check_routes(routes, file)


def check_routes(routes: Mapping[str, Handler | Route], file: str) -> list[Finding]:
    """Return findings about mistakes in the routes of `file`."""
    mistakes = (find_mistake(name, route) for name, route in routes.items())
    return [diagnostic("ROUTES", mistake, file=file) for mistake in mistakes if mistake]


def find_mistake(name: object, route: object) -> str:
    """Return the mistake in an entry of ROUTES, or ""."""
    if not isinstance(name, str) or not re.fullmatch("[A-Z]+ /[^ ]*", name):
        return f"{name!r} is not a valid route: write it like 'GET /version'."
    if name in HARNESS_ROUTES:
        return f"The harness defines the route {name!r}: choose another path."
    handler = route.handler if isinstance(route, Route) else route
    if not callable(handler):
        return f"The route {name!r} is neither a handler nor a `Route(handler)`."
    if isfunction(handler) and not iscoroutinefunction(handler):
        return f"The handler of the route {name!r} is not async: define it with `async def`."
    try:
        compile_path(name.partition(" ")[2])
    except (AssertionError, ValueError) as error:
        return f"{name!r} is not a valid route: {error}"
    return ""
