"""The base class of capabilities, such as a store, a page or one of your own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol, Self

from starlette.types import ASGIApp

from .contract import Change, Chunk, Emit, Json, Turn, TurnRequest, TurnResult, discard
from .deadline import time_limit
from .findings import Finding, diagnostic
from .log import describe
from .modules import Handler, LoadModules, Modules, Route
from .sessions.session_store import SessionStore
from .sessions.sessions import SessionHooks, Sessions
from .settings import CoreSettings

# Keys are method and path, such as "GET /files/{name}".
Routes = dict[str, Handler | Route]


class Runtime(Protocol):
    """The running agent, for capabilities and routes."""

    @property
    def settings(self) -> CoreSettings:
        """The settings of the process."""

    @property
    def sessions(self) -> Sessions:
        """The sessions of the process."""

    def spawn(self, request: TurnRequest, *, emit: Emit = discard) -> asyncio.Task[TurnResult]:
        """Run a turn in a task. Await the task for the result; cancel it to cancel the turn.

        Raises AgentError immediately: `server_busy` or `draining` if no turn may start,
        `invalid_request` if the prompt is invalid, or `actor_required`. The task also raises
        AgentError.
        """


class Capability(SessionHooks):
    """An extension of the agent; methods do nothing unless you override them.

    Each process creates one instance per class. The constructor must not read files or create
    clients, because `check` has not run yet. `before` holds the capabilities created earlier;
    `load` returns the project's own modules.
    """

    def __init__(
        self, settings: CoreSettings, before: Sequence["Capability"], load: LoadModules
    ) -> None:
        self.settings = settings
        self.load = load

    @classmethod
    def find(cls, capabilities: Iterable["Capability"]) -> Self:
        """Return the first instance of this class. Raises LookupError if none exists."""
        for capability in capabilities:
            if isinstance(capability, cls):
                return capability
        raise LookupError(f"No capability is a {cls.__name__}.")

    @property
    def actor_required(self) -> bool:
        """Whether every caller must send an actor id."""
        return False

    @property
    def is_busy(self) -> bool:
        """Whether committed data is waiting to be written."""
        return False

    @property
    def closes_last(self) -> bool:
        """Whether `close` runs after all other capabilities have closed; it then has 5 seconds."""
        return False

    @property
    def wraps_last(self) -> bool:
        """Whether `wrap` is inside the wrappers of all other capabilities, next to the routes."""
        return False

    @property
    def retention_notice(self) -> str:
        """A sentence about the saved data of a session. `chat` prints the sentence last."""
        return ""

    def check(self) -> list[Finding]:
        """Return findings about settings and files. Do not use the network."""
        return []

    async def ping(self) -> list[Finding]:
        """Call external services for `check --connect`, and return findings.

        Open and close clients here: `open` and `close` are not called. The time limit is
        TURN_TIMEOUT_SECONDS.
        """
        return []

    async def open(self, runtime: Runtime) -> None:
        """Connect. If this raises AgentError, the command prints its detail and exits.

        Keep `runtime` for jobs that spawn turns. Turns start after all capabilities are open.
        """

    async def close(self) -> None:
        """Write the remaining data and disconnect, within SHUTDOWN_GRACE_SECONDS + 2."""

    def describe(self, address: str) -> list[str]:
        """Return lines for `serve` to print first, such as the contacted hosts; no passwords."""
        return []

    def session_store(self) -> SessionStore | None:
        """Return the session store, or None; the first store wins."""
        return None

    def read(self, body: Mapping[str, Json], session_id: str) -> TurnRequest | None:
        """Parse a custom body of POST /invocations; return None to leave it to others.

        The values of a form are the same as in JSON, except `files`, which are `File`s.
        """

    def ask(
        self, result: TurnResult, request: TurnRequest, read: Callable[[str], str | None]
    ) -> TurnRequest | None:
        """Ask the user of `chat` for approvals; return the request that resumes the turn."""

    async def follow(self, session_id: str, actor: str | None) -> AsyncIterator[Chunk] | None:
        """Return the output of the session's running turn, for `chat --session`, or None.

        The iterator raises AgentError if the turn fails. Closing the iterator does not stop the
        turn.
        """
        return None

    def routes(self) -> Routes:
        """Return routes. Before a handler runs, the harness checks the request.

        It checks Host, Origin, Content-Type, API_TOKEN and the actor id, if there is one.
        """
        return {}

    def public_routes(self) -> Routes:
        """Return routes that need no API_TOKEN."""
        return {}

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Wrap the server's app in middleware; the first capability is the outermost wrapper."""
        return app

    def tools(self) -> list[Any]:
        """Return tools for every turn; in a name conflict, the agent's own tool wins."""
        return []

    @asynccontextmanager
    async def around(self, turn: Turn) -> AsyncIterator[None]:
        """Run code around a turn. AgentError before the `yield` rejects the turn.

        Errors after the `yield` are only logged. After the `yield`, `turn.outcome` is final.
        """
        yield

    async def ended(self, turn: Turn) -> None:
        """Handle the end of any turn: `turn` has its outcome and usage.

        The reply waits for this method, at most five seconds. Errors are only logged.
        """

    def wrap_model(self, model: Any, actor: str | None, turn: Turn | None) -> Any:
        """Wrap or replace the model for the requests of an actor.

        The first capability is the outermost wrapper. `prepare` runs later. An AgentError rejects
        the turn.
        `turn` is None for requests outside a turn.
        """
        return model

    async def before_change(self, change: Change) -> None:
        """Raise AgentError to reject the fork or the end of a session."""

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        """Change the options of the turn's agent: "model", "tools" and any you add.

        Raise AgentError to reject the turn.
        """

    def committed(self, turn: Turn, messages: list[Any]) -> None:
        """Handle the messages of a committed turn, in the framework's format. Not async."""


class App(Protocol):
    """The AgentApp, for a capability's commands."""

    def load(self) -> Modules:
        """Return the project's own modules."""

    def read_settings(self) -> tuple[Any, list[Finding]]:
        """Read the environment and .env; return settings and findings."""

    def make_capabilities(self, settings: Any) -> list[Capability]:
        """Return the capabilities."""

    def load_capabilities(self) -> list[Capability]:
        """Return the capabilities, for a command that runs no turns; refuse invalid settings."""


def overrides(capability: Capability, method: str) -> bool:
    """Whether the class of a capability overrides a method of Capability."""
    return getattr(type(capability), method) is not getattr(Capability, method)


def check_all(capabilities: Iterable[Capability]) -> list[Finding]:
    """Return the findings of all capabilities. Does not use the network."""
    findings = list[Finding]()
    for capability in capabilities:
        with _failures_in(findings, f"{type(capability).__name__}.check"):
            findings += capability.check()
    return findings


def wrap_model(
    capabilities: Iterable[Capability], model: Any, actor: str | None, turn: Turn | None = None
) -> Any:
    """Wrap the model for an actor with all capabilities; the first is the outermost wrapper."""
    for capability in reversed([*capabilities]):
        model = capability.wrap_model(model, actor, turn)
    return model


async def ping_all(capabilities: Iterable[Capability]) -> list[Finding]:
    """Return the findings of all capabilities about external services."""
    findings: list[Finding] = []
    for capability in capabilities:
        with _failures_in(findings, f"{type(capability).__name__}.ping"):
            async with time_limit(capability.settings.turn_timeout_seconds):
                findings += await capability.ping()
    return findings


@contextmanager
def _failures_in(findings: list[Finding], method: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 (a failure must not hide other findings)
        message = f"{method} failed: {describe(error)}."
        findings.append(diagnostic("CAPABILITY", message))
