"""What can plug into an agent: a store, a page, or something of your own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol, Self

from starlette.types import ASGIApp

from .contract import Change, Emit, Json, Turn, TurnRequest, TurnResult, discard
from .deadline import time_limit
from .findings import Finding, diagnostic
from .log import describe
from .modules import Handler, LoadModules, Modules, Route
from .sessions.session_store import SessionStore
from .sessions.sessions import SessionHooks, Sessions
from .settings import CoreSettings

# By method and path, such as "GET /files/{name}".
Routes = dict[str, Handler | Route]


class Runtime(Protocol):
    """What a process consists of, for capabilities and routes."""

    @property
    def settings(self) -> CoreSettings:
        """The settings of the process."""

    @property
    def sessions(self) -> Sessions:
        """The sessions of the process."""

    def spawn(self, request: TurnRequest, *, emit: Emit = discard) -> asyncio.Task[TurnResult]:
        """Run a turn in a task; to cancel the task cancels the turn.

        Await the task for the result. Raises AgentError, as the task does: `server_busy` and
        `draining` if no turn may start, `invalid_request` and `actor_required`.
        """


class Capability(SessionHooks):
    """A part that plugs into the agent; a method you do not override does nothing.

    Each process makes one of each class. The constructor must not read files or make clients:
    `check` has not run yet. `before` holds the capabilities made before this one,
    and `load` returns the modules of the owner, such as the one of the model.
    """

    def __init__(
        self, settings: CoreSettings, before: Sequence["Capability"], load: LoadModules
    ) -> None:
        self.settings = settings
        self.load = load

    @classmethod
    def find(cls, capabilities: Iterable["Capability"]) -> Self:
        """Return the capability of this kind. Raises LookupError if there is none."""
        for capability in capabilities:
            if isinstance(capability, cls):
                return capability
        raise LookupError(f"there is no {cls.__name__}")

    @property
    def actor_required(self) -> bool:
        """Whether every caller must send an actor id."""
        return False

    @property
    def is_busy(self) -> bool:
        """Whether data of a committed turn is still to be written."""
        return False

    @property
    def closes_last(self) -> bool:
        """Whether `close` runs after that of other capabilities, and has only five seconds."""
        return False

    @property
    def retention_notice(self) -> str:
        """A sentence about what was kept of a session; `chat` prints it last."""
        return ""

    def check(self) -> list[Finding]:
        """Return findings about settings and files, without using the network."""
        return []

    async def ping(self) -> list[Finding]:
        """Call what the capability depends on, for `check --connect`, and return findings.

        `open` is not called before this, nor `close` after it: close what you open. It must
        finish within TURN_TIMEOUT_SECONDS.
        """
        return []

    async def open(self, runtime: Runtime) -> None:
        """Connect. If it raises AgentError, the command prints its detail and ends.

        Keep `runtime` for jobs that spawn turns; before the first one, all capabilities are open.
        """

    async def close(self) -> None:
        """Write the remaining data and disconnect, within SHUTDOWN_GRACE_SECONDS + 2."""

    def describe(self, address: str) -> list[str]:
        """Return lines for the start of `serve`, such as what will be contacted."""
        return []

    def session_store(self) -> SessionStore | None:
        """Return where the sessions live; the first capability that has a store decides."""
        return None

    def read(self, body: Mapping[str, Json], session_id: str) -> TurnRequest | None:
        """Return the turn that a body of POST /invocations asks for, or None if it is not yours."""

    def ask(
        self, result: TurnResult, request: TurnRequest, read: Callable[[str], str | None]
    ) -> TurnRequest | None:
        """Ask a person in the terminal what a turn waits for; return the turn that goes on."""

    def routes(self) -> Routes:
        """Return routes; Host, Origin and API_TOKEN are checked before they are called.

        A `Route` also has the actor of the request checked.
        """
        return {}

    def public_routes(self) -> Routes:
        """Return routes that need no API_TOKEN."""
        return {}

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Return the server's app wrapped in your middleware; the first one's is outermost."""
        return app

    def tools(self) -> list[Any]:
        """Return tools for every turn; if a name occurs twice, the agent's own tool wins."""
        return []

    @asynccontextmanager
    async def around(self, turn: Turn) -> AsyncIterator[None]:
        """Surround a turn. AgentError before the `yield` refuses it; later errors are logged.

        After the `yield`, `turn.outcome` is final.
        """
        yield

    async def ended(self, turn: Turn) -> None:
        """Use the outcome and the usage of a turn that ended, however it did."""

    def wrap_model(self, model: Any, actor: str | None, turn: Turn | None) -> Any:
        """Return a model wrapped in your own, or another one, for requests on behalf of an actor.

        The wrapping of the first capability is outermost. AgentError refuses the turn. `turn` is
        None if no turn waits for the answers. `prepare` comes later.
        """
        return model

    async def before_change(self, change: Change) -> None:
        """Raise AgentError to refuse to fork or end a session."""

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        """Change the arguments of the turn's agent: "model", "tools", and those you add.

        Raise AgentError to refuse the turn.
        """

    def committed(self, turn: Turn, messages: list[Any]) -> None:
        """Use the messages that a committed turn added, in the framework's form. Not async."""


class App(Protocol):
    """The agent as the commands of a capability see it: an AgentApp."""

    def load(self) -> Modules:
        """Return the modules of the owner."""

    def read_settings(self) -> tuple[Any, list[Finding]]:
        """Read the environment and .env; return settings and findings."""

    def make_capabilities(self, settings: Any) -> list[Capability]:
        """Return the capabilities."""

    def load_capabilities(self) -> list[Capability]:
        """Return the capabilities, for commands that run no turn; refuse errors in the settings."""


def overrides(capability: Capability, method: str) -> bool:
    """Whether the class of a capability overrides a method of Capability."""
    return getattr(type(capability), method) is not getattr(Capability, method)


def check_all(capabilities: Iterable[Capability]) -> list[Finding]:
    """Return the findings of all capabilities, without using the network."""
    findings = list[Finding]()
    for capability in capabilities:
        with _failures_in(findings, f"{type(capability).__name__}.check"):
            findings += capability.check()
    return findings


def wrap_model(
    capabilities: Iterable[Capability], model: Any, actor: str | None, turn: Turn | None = None
) -> Any:
    """Return a model for requests on behalf of an actor; the first capability wraps it last."""
    for capability in reversed([*capabilities]):
        model = capability.wrap_model(model, actor, turn)
    return model


async def ping_all(capabilities: Iterable[Capability]) -> list[Finding]:
    """Return the findings of all capabilities about what they depend on."""
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
    except Exception as error:  # noqa: BLE001 (one failure must not hide other findings)
        what = f"{method} failed: {describe(error)}."
        findings.append(diagnostic("CAPABILITY", what))
