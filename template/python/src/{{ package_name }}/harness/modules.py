"""The interfaces of the project's own modules."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .findings import Finding, agent_file, diagnostic
from .settings import CoreSettings

if TYPE_CHECKING:  # Starlette would take a quarter of the time of --help
    from starlette.responses import Response

# Takes a Starlette request and the Runtime.
Handler = Callable[..., Awaitable["Response"]]


@dataclass(frozen=True)
class Route:
    """A route with options; a plain handler means `Route(handler)`.

    `public` routes need no API_TOKEN and get no actor. `types` are the content types that web
    pages may send. `max_bytes` limits the body; None means MAX_BODY_BYTES.
    """

    handler: Handler
    _: KW_ONLY
    public: bool = False
    types: Sequence[str] = ("application/json",)
    max_bytes: int | None = None


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


class RoutesModule(Protocol):
    """The module `routes`."""

    @property
    def ROUTES(self) -> Mapping[str, Handler | Route]:
        """The routes by method and path, as in `GET /orders/{id}`.

        `{id}` matches one segment, `{id:path}` several.
        """


@dataclass(frozen=True)
class Modules:
    """The modules that need a framework or a client.

    `memory` is the policy of long-term memory, if the project has memory.
    """

    agent: AgentModule
    model: ModelModule
    routes: RoutesModule
    memory: object = None


LoadModules = Callable[[], Modules]


def tool_name(tool: object) -> str:
    """Return the name of a tool; empty if the object is not a tool."""
    return getattr(tool, "tool_name", "") or getattr(tool, "name", "")


def check_agent(agent: AgentModule) -> list[Finding]:
    """Return findings about names of the module `agent` that are missing or have another type."""
    missing = [name for name in ("SYSTEM_PROMPT", "TOOLS") if not hasattr(agent, name)]
    if missing:
        return [_report(f"{name} is missing: define it.") for name in missing]
    if not isinstance(agent.TOOLS, list | tuple):
        return [_report("TOOLS is not a list: write it like `TOOLS = [word_count]`.")]
    kinds = [getattr(it, "__name__", repr(it)) for it in agent.TOOLS if not tool_name(it)]
    findings = [_report(f"{kind} in TOOLS is not a tool: add `@tool`.") for kind in kinds]
    if not isinstance(getattr(agent, "FINAL_TOOLS", []), list | tuple | set | frozenset):
        message = 'FINAL_TOOLS is not a list of names: write it like `FINAL_TOOLS = ["hand_over"]`.'
        findings.append(_report(message))
    return findings


def check_final_tools(agent: AgentModule, names: Collection[str]) -> list[Finding]:
    """Return a finding for each name in FINAL_TOOLS that no tool has."""
    unknown = [name for name in getattr(agent, "FINAL_TOOLS", []) if name not in names]
    message = "FINAL_TOOLS names {!r}, but no tool has this name."
    return [_report(message.format(name)) for name in unknown]


def _report(message: str) -> Finding:
    return diagnostic("AGENT", message, file=agent_file())
