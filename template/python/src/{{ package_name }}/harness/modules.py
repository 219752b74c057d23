"""The interfaces of the owner's modules."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from inspect import iscoroutinefunction, isfunction
from typing import Any, Protocol

from starlette.responses import Response
from starlette.routing import compile_path

from .findings import Finding, agent_file, diagnostic
from .project import Project
from .settings import CoreSettings

# Takes a Starlette request and the Runtime.
Handler = Callable[..., Awaitable[Response]]


@dataclass(frozen=True)
class Route:
    """A route of the owner or a capability; a plain handler means `Route(handler)`.

    `public` routes need no API_TOKEN and have no actor. `types` are the content types that web
    pages may send. `max_bytes` limits the body; None means MAX_BODY_BYTES.
    """

    handler: Handler
    _: KW_ONLY
    public: bool = False
    types: Sequence[str] = ("application/json",)
    max_bytes: int | None = None


def find_route_mistake(name: object, route: object) -> str:
    """Return the mistake in an entry of ROUTES, or ""."""
    if not isinstance(name, str) or not re.fullmatch("[A-Z]+ /[^ ]*", name):
        return f"{name!r} is not a valid route: write it like 'GET /version'."
    if name in {"POST /invocations", "GET /ping"}:
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


class AgentModule(Protocol):
    """The module `agent`: system prompt and tools."""

    SYSTEM_PROMPT: str
    TOOLS: list[Any]


class ModelModule(Protocol):
    """The module `model`: the model and its provider.

    CREDENTIALS and ADDRESS name the settings to check if the provider rejects a call or cannot be
    reached.
    """

    CREDENTIALS: str
    ADDRESS: str

    def build_model(self, settings: CoreSettings) -> Any:
        """Return the framework's model."""

    def check_model(self, settings: CoreSettings) -> list[Finding]:
        """Return findings about missing or invalid settings of the model."""

    def model_endpoint(self, settings: CoreSettings) -> str:
        """Return the address of the provider."""


@dataclass(frozen=True)
class Modules:
    """The modules that need a framework or a client; keys of `routes` are method and path.

    `memory` is the policy of long-term memory, if the project has memory.
    """

    agent: AgentModule
    model: ModelModule
    routes: Mapping[str, Handler | Route]
    memory: object = None


LoadModules = Callable[[], Modules]


def check_modules(modules: Modules) -> list[Finding]:
    """Return findings about mistakes in the modules `agent` and `routes`."""
    findings = [
        diagnostic("AGENT", f"{name} is missing: define it.", file=agent_file())
        for name in ("SYSTEM_PROMPT", "TOOLS")
        if not hasattr(modules.agent, name)
    ]
    mistakes = (find_route_mistake(name, route) for name, route in modules.routes.items())
    file = Project.name_of(Project.package / "routes.py")
    found = [diagnostic("ROUTES", mistake, file=file) for mistake in mistakes if mistake]
    return findings + found


def check_final_tools(agent: AgentModule, names: Collection[str]) -> list[Finding]:
    """Return findings about FINAL_TOOLS without a tool of that name."""
    unknown = [name for name in getattr(agent, "FINAL_TOOLS", []) if name not in names]
    message = "FINAL_TOOLS names {!r}, but no tool has this name."
    return [diagnostic("AGENT", message.format(name), file=agent_file()) for name in unknown]
