"""The HTTP contract of AgentCore Runtime: POST /invocations and GET /ping."""

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from traceback import format_tb
from typing import Any
from uuid import uuid4

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from . import contract
from .contract import SESSION_HEADER, AgentError, EndSession, TurnRequest, describe
from .requests import authorize, client_left, read_call, read_header, refuse_foreign, wants_events
from .routes import ROUTES, Handler
from .runtime import Runtime
from .settings import split_list
from .turn import take_turn
from .turn_log import logged

log = logging.getLogger(__name__)
Chunks = AsyncIterator[str]
Call = TurnRequest | EndSession


class Turns:
    """The turns that run or wait in this process, each in its own task."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        self.changed = int(time.time())
        self.is_draining = False

    def check_room(self, max_turns: int) -> None:
        """Raise AgentError when no turn may start: `draining` or `server_busy`."""
        if self.is_draining:
            raise AgentError("draining")
        if len(self.tasks) >= max_turns:
            raise AgentError("server_busy")

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a turn."""
        task = asyncio.create_task(work)
        self._change(task)
        task.add_done_callback(self._change)
        return task

    def _change(self, task: asyncio.Task[Any]) -> None:
        self.tasks ^= {task}
        self.changed = int(time.time())

    async def drain(self, grace_seconds: float) -> None:
        """Refuse new turns, let running ones finish within this time, then cancel them."""
        self.is_draining = True
        while self.tasks:
            await asyncio.wait(self.tasks, timeout=grace_seconds)
            for task in self.tasks:
                task.cancel()


def create_app(runtime: Runtime, turns: Turns) -> Starlette:
    async def ping(request: Request) -> Response:
        refuse_foreign(request, runtime)
        status = "HealthyBusy" if turns.tasks or runtime.is_waiting else "Healthy"
        return JSONResponse({"status": status, "time_of_last_update": turns.changed})

    async def invocations(request: Request) -> Response:
        given_id = read_header(request, SESSION_HEADER)
        request.state.session_id = str(uuid4()) if given_id is None else given_id
        refuse_foreign(request, runtime)
        authorize(request, runtime)
        turns.check_room(runtime.settings.max_turns)
        session_id = request.state.session_id
        call = await read_call(request, runtime, session_id, is_new=given_id is None)
        turns.check_room(runtime.settings.max_turns)  # others started meanwhile
        response = await _relay(request, turns, runtime, call)
        response.headers[SESSION_HEADER] = session_id
        return response

    def checked(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            refuse_foreign(request, runtime)
            authorize(request, runtime)
            return await handler(request, runtime)

        return respond

    routes = [Route("/ping", ping), Route("/invocations", invocations, methods=["POST"])]
    for name, handler in ROUTES.items():
        method, path = name.split()
        routes.append(Route(path, checked(handler), methods=[method]))
    pages = split_list(runtime.settings.allowed_origins)
    cors = Middleware(
        CORSMiddleware, pages, ["GET", "POST"], ["*"], expose_headers=[SESSION_HEADER]
    )
    app = Starlette(
        routes=routes,
        middleware=[cors] if pages else [],
        exception_handlers={AgentError: _fail, HTTPException: _fail, Exception: _fail},
    )
    app.router.redirect_slashes = False
    return app


async def _relay(request: Request, turns: Turns, runtime: Runtime, call: Call) -> Response:
    """Run what was requested, relay its output, and cancel it when the client leaves."""
    writer, chunks = anyio.create_memory_object_stream[str](64)
    turn = turns.start(_run(runtime, call, writer.send))
    watch = asyncio.create_task(client_left(request))
    watch.add_done_callback(lambda _: turn.cancel())
    turn.add_done_callback(lambda _: watch.cancel())
    turn.add_done_callback(lambda _: writer.close())
    held, is_stream = "", wants_events(request)
    async for chunk in chunks:
        held += _event("", chunk) if is_stream else ""
        if is_stream and not contract.is_blank(chunk):  # until then a failure is a status
            return StreamingResponse(_events(held, chunks, turn), media_type="text/event-stream")
    return JSONResponse(await _result(turn))


async def _run(
    runtime: Runtime, call: Call, emit: Callable[[str], Awaitable[None]]
) -> dict[str, Any]:
    if isinstance(call, TurnRequest):
        with logged(call) as report:
            last = await take_turn(runtime, call, emit, report)
        return {"session_id": call.session_id, "turn": last["turn"], "reply": last["reply"]}
    try:
        async with runtime.sessions.open(call.session_id, call.actor) as session:
            await session.end()
    except AgentError as error:
        log.warning("session %s: not ended: %s %s", call.session_id, error.type, error.detail)
        raise
    return {"session_id": call.session_id, "ended": True}


async def _result(turn: asyncio.Task[dict[str, Any]]) -> dict[str, Any]:
    await asyncio.wait({turn})
    if turn.cancelled():  # by the shutdown, or because the client left
        raise AgentError("draining")
    return turn.result()


async def _events(held: str, chunks: Chunks, turn: asyncio.Task[Any]) -> Chunks:
    yield held
    async for chunk in chunks:
        yield _event("", chunk)
    try:
        result = await _result(turn)
        yield _event("event: done\n", {"session_id": result["session_id"], "turn": result["turn"]})
    except Exception as error:  # noqa: BLE001 (the client must learn of any)
        yield _event("event: error\n", _failure(error).body)


def _event(name: str, data: Any) -> str:
    return f"{name}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


async def _fail(request: Request, error: Exception) -> Response:
    failure = _failure(error)
    response = JSONResponse(failure.body, failure.status)
    if re.fullmatch(contract.SESSION_ID, getattr(request.state, "session_id", "")):
        response.headers[SESSION_HEADER] = request.state.session_id
    if failure.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if failure.type == "server_busy":
        response.headers["Retry-After"] = "1"
    if isinstance(error, HTTPException) and error.headers:
        response.headers["Allow"] = ", ".join(sorted(error.headers["Allow"].split(", ")))
    return response


def _failure(error: Exception) -> AgentError:
    if isinstance(error, ClientDisconnect):  # it left before the end of its request
        return AgentError("request_timeout")
    if isinstance(error, HTTPException):
        return AgentError("method_not_allowed" if error.status_code == 405 else "not_found")
    if not isinstance(error, AgentError):
        # Only its kind and place: its text may quote a prompt.
        log.error("%s\n%s", describe(error), "".join(format_tb(error.__traceback__)))
    return error if isinstance(error, AgentError) else AgentError("internal_error")
