"""The running agent: its model, sessions, turns and capabilities."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

import click

from .capability import App, Capability, check_all, overrides, wrap_model
from .contract import (
    DRAINING,
    RUNNING,
    AgentError,
    Change,
    Chunk,
    Emit,
    FileUrl,
    Json,
    Turn,
    TurnRequest,
    TurnResult,
    check_prompt,
    discard,
)
from .deadline import is_cancelled, time_limit
from .file_urls import check_urls, fetch_files
from .files import FORMATS, check_files
from .findings import Finding, refuse_errors
from .http.routes import check_own_routes
from .log import announce, as_agent_error, describe, log_turn, log_unexpected
from .models.file_types import FILE_TYPES
from .modules import ModelModule, Modules, check_agent, check_final_tools, tool_name
from .sessions.running_turns import Turns
from .sessions.session_store import InProcess
from .sessions.sessions import Sessions, Stage
from .settings import CoreSettings, proxy_variables, without_password
from .tool_schemas import refused_tool

log = logging.getLogger(__name__)
ENDED_SECONDS = 5  # time limit of a capability's `ended`
CLOSE_LAST_SECONDS = 5  # time limit of `close` if `closes_last`


class Runtime:
    """The model, sessions, turns and capabilities of a process."""

    def __init__(
        self,
        settings: CoreSettings,
        modules: Modules,
        capabilities: Sequence[Capability] = (),
        *,
        logs_turns: bool = True,
    ) -> None:
        """Call `check_all` first: with invalid files, the constructor raises arbitrary errors."""
        self.settings = settings
        self.modules = modules
        self.model = make_model(modules.model, settings)
        self.capabilities = capabilities
        self.turns = Turns(settings.max_turns)
        self._logs_turns = logs_turns
        self._opened = list[Capability]()
        for method in (m for c in capabilities for m in (c.prepare, c.committed)):
            if iscoroutinefunction(method):
                message = f"{method.__qualname__} must not be async: define it with `def`."
                raise click.ClickException(message)
        stores = [store for capability in capabilities if (store := capability.session_store())]
        store = stores[0] if stores else InProcess(settings)
        self.sessions = Sessions(settings, store, capabilities)

    @property
    def actor_required(self) -> bool:
        """Whether every caller must send an actor id."""
        return any(capability.actor_required for capability in self.capabilities)

    @property
    def file_types(self) -> Collection[str]:
        """The media types of the files that the model accepts."""
        if self.settings.model == "offline":
            return FORMATS
        types: Collection[str] = getattr(self.modules.model, "FILE_TYPES", FILE_TYPES)
        return types

    @property
    def retention_notice(self) -> str:
        """Sentences about the saved data of a session, for `chat`."""
        notices = [capability.retention_notice for capability in self.capabilities]
        return " ".join([self.sessions.store.retention_notice, *filter(None, notices)])

    def describe(self, address: str) -> list[str]:
        """Return lines about the model, the sessions and the capabilities, without passwords."""
        model = self.settings.model
        endpoint = "nothing"
        if model != "offline":
            model_endpoint = self.modules.model.model_endpoint
            endpoint = without_password(model_endpoint(self.settings))
        lines = [f"Model: {model}, contacts {endpoint}"]
        lines.append(f"Sessions: {self.sessions.store.description}")
        for capability in self.capabilities:
            lines += capability.describe(address)
        return lines

    def read_request(self, body: Mapping[str, Json], session_id: str) -> TurnRequest | None:
        """Return the request that a capability parses from a body, or None."""
        turns = (capability.read(body, session_id) for capability in self.capabilities)
        return next(filter(None, turns), None)

    def ask_approval(
        self, result: TurnResult, request: TurnRequest, read: Callable[[str], str | None]
    ) -> TurnRequest | None:
        """Ask the user of `chat` for approvals; return the request that resumes the turn."""
        turns = (capability.ask(result, request, read) for capability in self.capabilities)
        return next(filter(None, turns), None)

    async def follow(self, session_id: str, actor: str | None) -> AsyncIterator[Chunk] | None:
        """Return the output of the session's running turn, if a capability can read it."""
        for capability in self.overriding("follow"):
            if chunks := await capability.follow(session_id, actor):
                return chunks
        return None

    def spawn(self, request: TurnRequest, *, emit: Emit = discard) -> asyncio.Task[TurnResult]:
        """Run a turn in a task: see `capability.Runtime`."""
        return self.start(Turn(request, emit))

    def start(self, turn: Turn) -> asyncio.Task[TurnResult]:
        """Run a prepared turn in a task. Raises the errors of `spawn`."""
        if turn.request.needs_prompt:
            check_prompt(turn.prompt, self.settings.max_prompt_chars)
        check_files(turn.request.files, self.file_types, self.settings)
        check_urls(turn.request.files, self.settings)
        if self.actor_required and turn.actor is None:
            raise AgentError("actor_required")
        return self.turns.start(self._run(turn))

    async def _run(self, turn: Turn) -> TurnResult:
        start = time.monotonic()
        try:
            async with self._around(turn):
                return await take_turn(self, turn)
        except asyncio.CancelledError as error:
            if error.args == DRAINING:
                raise AgentError("draining") from None
            raise
        except AgentError:  # raised unchanged, because callers read its cause
            raise
        except Exception as error:  # noqa: BLE001 (callers get an AgentError)
            raise as_agent_error(error) from None
        finally:
            turn.milliseconds = round((time.monotonic() - start) * 1000)
            if self._logs_turns:
                log_turn(turn, self.settings.model)
            if capabilities := self.overriding("ended"):
                ending = asyncio.create_task(_call_ended(capabilities, turn))
                while not ending.done():  # the turn has ended: ignore cancellation
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait({ending})

    def tools(self) -> list[Any]:
        """Return the tools of every turn; in a name conflict, the agent's own tool wins."""
        return [*self._tools_by_name().values()]

    def _tools_by_name(self) -> dict[str, Any]:
        tools = dict[str, Any]()
        capabilities = self.overriding("tools")
        more_tools = [tool for capability in capabilities for tool in capability.tools()]
        for tool in [*self.modules.agent.TOOLS, *more_tools]:
            name = tool_name(tool)
            if not name:
                kind = getattr(tool, "__name__", type(tool).__name__)
                raise AgentError("internal_error", detail=f"{kind} is not a tool: add @tool")
            tools.setdefault(name, tool)
        return tools

    def overriding(self, method: str) -> list[Capability]:
        """Return the capabilities that override `method`."""
        return [capability for capability in self.capabilities if overrides(capability, method)]

    @asynccontextmanager
    async def _around(self, turn: Turn) -> AsyncIterator[None]:
        """Make a turn current and run the `around` methods of all capabilities."""
        RUNNING.set(turn)
        try:
            async with AsyncExitStack() as stack:
                try:
                    for capability in self.overriding("around"):
                        context = capability.around(turn)
                        await context.__aenter__()
                        stack.push_async_exit(partial(_leave, context))
                    yield
                except asyncio.CancelledError as error:
                    if is_cancelled():
                        turn.fail(error)
                        raise
                    failure = AgentError("internal_error", detail=describe(error))
                    turn.fail(failure)
                    raise failure from error
                except BaseException as error:
                    turn.fail(error)
                    raise
        except AgentError as error:
            if error.type == "model_failed":
                self._log_refused_tool(error)
            raise
        finally:
            turn.stopped.set()

    def _log_refused_tool(self, error: AgentError) -> None:
        """Log the name of the tool that the provider rejected."""
        if name := refused_tool(error, [*self._tools_by_name()]):
            log.warning("the provider rejects tool %s: run `check`", name)

    async def fetch_files(self, stage: Stage) -> None:
        """Fetch the files of the turn that the request names by URL. Raises AgentError."""
        request = stage.turn.request
        if any(isinstance(file, FileUrl) for file in request.files):
            files = await fetch_files(request.files, self.settings, stage.check_size)
            check_files(files, self.file_types, self.settings)
            stage.turn.request = replace(request, files=files)

    def prepare(self, turn: Turn) -> dict[str, Any]:
        """Return the options of the turn's agent, such as model and tools."""
        model = wrap_model(self.capabilities, self.model, turn.actor, turn)
        options = {"model": model, "tools": self.tools()}
        for capability in self.overriding("prepare"):
            capability.prepare(turn, options)
        return options

    async def before_change(self, change: Change) -> None:
        """Call `before_change` of all capabilities. Raises AgentError."""
        for capability in self.overriding("before_change"):
            await capability.before_change(change)

    def committed(self, turn: Turn, messages: list[Any]) -> None:
        """Pass the messages of a committed turn to all capabilities."""
        for capability in self.overriding("committed"):
            try:
                capability.committed(turn, messages)
            except (Exception, SystemExit) as error:  # noqa: BLE001 (the turn is committed)
                log_unexpected(error)

    async def open(self) -> None:
        """Open all capabilities. An AgentError becomes a ClickException with its detail."""
        try:
            for capability in self.capabilities:
                await capability.open(self)
                self._opened.append(capability)
            agent = self.modules.agent
            if hasattr(agent, "FINAL_TOOLS"):
                refuse_errors(check_final_tools(agent, self._tools_by_name()))
        except BaseException as error:
            await self.close()
            if isinstance(error, AgentError):
                raise click.ClickException(error.detail or str(error)) from None
            raise

    async def close(self) -> None:
        """Close all opened capabilities."""
        opened = self._opened
        self._opened = []
        last = [capability for capability in opened if capability.closes_last]
        others = [capability for capability in opened if not capability.closes_last]
        seconds = self.settings.shutdown_grace_seconds + 2
        await asyncio.gather(*(_close(capability, seconds) for capability in others))
        await asyncio.gather(*(_close(capability, CLOSE_LAST_SECONDS) for capability in last))


async def take_turn(runtime: Runtime, turn: Turn) -> TurnResult:
    """Run a turn as a transaction: stage a copy of the session, answer, commit.

    Only the commit changes the session. A turn that fails, is cancelled, times out or ends without
    a complete reply leaves the session unchanged. Raises AgentError.
    """
    from .turn import answer_turn  # loads the framework

    async with runtime.sessions.open(turn.session_id, turn.actor) as session:
        stage = await session.begin(turn)
        if isinstance(stage, TurnResult):
            if stage.reply:  # a waiting turn may have no text
                await turn.emit(stage.reply)
            return stage
        try:
            async with time_limit(runtime.settings.turn_timeout_seconds) as limit:
                await runtime.fetch_files(stage)
                options = runtime.prepare(turn)
                agent = runtime.modules.agent
                snapshot, new_messages = await answer_turn(
                    stage, agent, options, runtime.settings, runtime.file_types
                )
        except TimeoutError:
            if not limit.expired():
                raise
            raise AgentError("turn_timeout") from None
        return await stage.commit(snapshot, partial(runtime.committed, turn, new_messages))


async def _call_ended(capabilities: list[Capability], turn: Turn) -> None:
    """Call `ended` of all capabilities; log their errors."""
    for capability in capabilities:
        try:
            async with asyncio.timeout(ENDED_SECONDS):
                await capability.ended(turn)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the turn has ended)
            log_unexpected(error)
        except asyncio.CancelledError as error:  # of a task that the capability awaits
            _raise_if_cancelled(error)


async def _close(capability: Capability, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await capability.close()
    except Exception as error:  # noqa: BLE001 (the others must still close)
        log_unexpected(error)
    except asyncio.CancelledError as error:  # of a task that the capability awaits
        _raise_if_cancelled(error)


def _raise_if_cancelled(error: asyncio.CancelledError) -> None:
    """Raise `error` if the current task is cancelled; otherwise log `error`."""
    if is_cancelled():
        raise error
    log_unexpected(error)


async def _leave(context: AbstractAsyncContextManager[None], *failure: Any) -> None:
    """Exit a capability's context; log its errors, because the turn has ended."""
    try:
        await context.__aexit__(*failure)
    except BaseException as error:  # noqa: BLE001 (the turn has ended)
        if error is failure[1]:
            return
        log_unexpected(error)
        if (task := asyncio.current_task()) and isinstance(error, asyncio.CancelledError):
            task.uncancel()  # the turn ended before the cancellation


def make_model(module: ModelModule, settings: CoreSettings) -> Any:
    """Return the model. Raises ClickException if a proxy setting breaks its client."""
    try:
        return module.build_model(settings)
    except Exception as error:
        if not (names := proxy_variables()):
            raise
        hint = " A SOCKS proxy needs `uv add socksio`." if isinstance(error, ImportError) else ""
        message = f"Cannot create the model's client ({describe(error)}): check {names}.{hint}"
        raise click.ClickException(message) from None


def start_runtime(
    app: App, settings: CoreSettings, findings: list[Finding], *, logs_turns: bool = True
) -> Runtime:
    """Return the runtime. Raises ClickException if `check` finds an error."""
    modules = app.load()
    capabilities = app.make_capabilities(settings)
    refuse_errors(
        [
            *findings,
            *check_agent(modules.agent),
            *check_own_routes(modules.routes),
            *modules.model.check_model(settings),
            *check_all(capabilities),
        ]
    )
    if settings.model == "offline":
        announce("MODEL is not set: the echo model answers. See README.md to choose a model.")
    return Runtime(settings, modules, capabilities, logs_turns=logs_turns)
