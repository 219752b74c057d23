"""The HTTP contract of AgentCore Runtime: POST /invocations and GET /ping."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from http.client import responses
from typing import Any, ClassVar, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route as HTTPRoute
from starlette.types import ASGIApp

from .. import contract
from ..contract import (
    SESSION_HEADER,
    AgentError,
    Change,
    Data,
    Json,
    Reasoning,
    Source,
    Turn,
    TurnRequest,
    TurnResult,
)
from ..findings import refuse_errors
from ..log import describe, log_unexpected
from ..modules import Handler, Route
from ..runtime import Runtime
from ..sessions.sessions import serialize
from .requests import bounded, check_access, find_actor, read_call, split_list, wants_events
from .routes import check_routes

log = logging.getLogger(__name__)
# The type of an error by its HTTP status, for errors of the router and of route handlers.
HTTP_TYPES = {
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    413: "payload_too_large",
    429: "rate_limited",
    431: "head_too_large",
}
KEEP_ALIVE = ": keep-alive\n\n"  # an SSE comment, sent because proxies close idle connections


class Events:
    """A reply as the server-sent events of POST /invocations."""

    # X-Accel-Buffering stops nginx from buffering the reply.
    headers: ClassVar[dict[str, str]] = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

    turn: Turn  # set by `relay`

    def format_start(self) -> str:
        """Return the opening events.

        If this is empty, a failure before the first text is reported as an HTTP status.
        """
        return ""

    def format_chunk(self, chunk: contract.Chunk) -> str:
        """Return the event for a chunk, or an empty string."""
        if isinstance(chunk, str):
            return _event("", chunk)
        if isinstance(chunk, Reasoning):
            return _event("event: reasoning\n", chunk.text)
        if isinstance(chunk, Data):
            return _event("event: data\n", {"name": chunk.name, "value": chunk.value})
        if isinstance(chunk, Source):
            return _event("event: source\n", {"url": chunk.url, "title": chunk.title})
        return ""

    def format_result(self, result: TurnResult) -> str:
        """Return the event of a committed or waiting turn."""
        data = body_of(result)
        data.pop("reply", None)
        return _event(f"event: {'waiting' if result.waiting else 'done'}\n", data)

    def format_error(self, failure: AgentError) -> str:
        """Return the event of a failed turn."""
        return _event("event: error\n", failure.body)


def create_app(runtime: Runtime) -> ASGIApp:
    """Return the app: its routes come from the contract, the project and the capabilities."""
    paths = ("/invocations", "/invocations/")
    routes = [HTTPRoute(path, partial(_invoke, runtime), methods=["POST"]) for path in paths]

    def add(new_routes: Mapping[str, Handler | Route]) -> None:
        """Add routes whose requests are checked before the handler runs."""
        for name, route in new_routes.items():
            method, path = name.split(" ")
            respond = _responder(_as_route(route), runtime)
            routes.append(HTTPRoute(path, respond, methods=[method]))

    ping = _responder(Route(_ping, public=True), runtime)
    routes.append(HTTPRoute("/ping", ping, methods=["GET"]))
    add(runtime.modules.routes.ROUTES)
    for capability in runtime.capabilities:
        own = capability.routes()
        public = capability.public_routes()
        refuse_errors(check_routes({**own, **public}, "environment"))
        add(own)
        add({name: replace(_as_route(route), public=True) for name, route in public.items()})
    expected: dict[Any, Any] = {AgentError: _fail, HTTPException: _fail}
    failures = {**expected, Exception: _fail}
    wrapping = runtime.overriding("wrap")
    middleware = [Middleware(it.wrap) for it in wrapping if not it.wraps_last]
    last = [Middleware(it.wrap) for it in wrapping if it.wraps_last]
    # Turn the errors of the middleware into responses.
    if last:
        middleware += [Middleware(ExceptionMiddleware, expected), *last]
    if middleware:
        middleware.insert(0, Middleware(ExceptionMiddleware, failures))
    if allowed_origins := split_list(runtime.settings.allowed_origins):
        methods = sorted({method for route in routes for method in route.methods or ()})
        exposed_headers = [SESSION_HEADER, "Retry-After", "WWW-Authenticate"]
        cors = Middleware(
            CORSMiddleware, allowed_origins, methods, ["*"], expose_headers=exposed_headers
        )
        middleware.insert(0, cors)  # outermost, so that rejections have CORS headers
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=failures)
    app.router.redirect_slashes = False
    app.middleware_stack = app.build_middleware_stack()  # an error in `wrap` aborts startup
    return app


def _as_route(route: Handler | Route) -> Route:
    return route if isinstance(route, Route) else Route(route)


def _responder(route: Route, runtime: Runtime) -> Callable[[Request], Awaitable[Response]]:
    """Return a function that checks a request, then calls the handler."""
    max_bytes = route.max_bytes
    if max_bytes is None:
        max_bytes = runtime.settings.max_body_bytes

    async def respond(request: Request) -> Response:
        if "" in request.path_params.values():  # of `{name:path}`, which may match no text
            raise AgentError("not_found")
        check_access(request, runtime, needs_token=not route.public, types=route.types)
        request.state.actor = None if route.public else find_actor(request)
        return await route.handler(bounded(request, max_bytes), runtime)

    return respond


async def _ping(_: Request, runtime: Runtime) -> Response:
    is_busy = runtime.turns.tasks or any(it.is_busy for it in runtime.capabilities)
    status = "HealthyBusy" if is_busy else "Healthy"
    body = {"status": status, "time_of_last_update": runtime.turns.since(status)}
    response = JSONResponse(body, headers=contract.NO_SNIFF)
    if runtime.turns.is_draining:
        response.headers["X-Draining"] = "1"
    return response


async def _invoke(runtime: Runtime, request: Request) -> Response:
    call = await read_call(request, runtime)
    if isinstance(call, Change):
        change = runtime.turns.start(_change(runtime, call))
        _watch(request, change)
        response: Response = JSONResponse(await _result(change), headers=contract.NO_SNIFF)
    else:
        response = await relay(request, runtime, call, Events() if wants_events(request) else None)
    response.headers[SESSION_HEADER] = call.session_id
    return response


async def relay(
    request: Request, runtime: Runtime, call: TurnRequest, events: Events | None
) -> Response:
    """Run a turn, relay its output, and cancel it if the client disconnects.

    If `events` is None, the reply is JSON.
    """
    # The clock sends None.
    writer, chunks = anyio.create_memory_object_stream[contract.Chunk | None](64)
    turn = Turn(call, writer.send)
    task = runtime.start(turn)
    _watch(request, task)
    task.add_done_callback(lambda _: writer.close())
    if not events:
        async for _ in chunks:  # a full buffer would block the turn
            pass
        body = serialize(body_of(await _result(task)))
        return Response(body, 200, contract.NO_SNIFF, "application/json")
    events.turn = turn
    seconds = runtime.settings.keep_alive_seconds
    clock = asyncio.create_task(_tick(writer, seconds / 10))
    task.add_done_callback(lambda _: clock.cancel())
    reply = _stream(events, chunks, task, seconds)
    first = await anext(reply)

    async def stream() -> AsyncIterator[str]:
        yield first
        async for text in reply:
            yield text

    return StreamingResponse(stream(), headers=events.headers, media_type="text/event-stream")


async def _tick(writer: MemoryObjectSendStream[contract.Chunk | None], seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        await writer.send(None)


async def _stream(
    events: Events,
    chunks: MemoryObjectReceiveStream[contract.Chunk | None],
    task: asyncio.Task[TurnResult],
    seconds: int,
) -> AsyncIterator[str]:
    """Yield the events of a turn, and a comment after `seconds` of silence.

    If the turn fails before the first event, raise the error, so that the response has its status.
    Comments are sent only after the turn has begun, because any output sets the status to 200.
    """
    buffered = events.format_start()
    last_sent = time.monotonic()
    has_status = buffered != ""
    if has_status:
        yield buffered
        buffered = ""
        last_sent = time.monotonic()
    async for chunk in chunks:
        if chunk is not None:
            text = events.format_chunk(chunk)
            buffered += text
            # A turn with only blank text fails with `empty_reply`, which sets the HTTP status.
            is_blank = isinstance(chunk, str) and contract.is_blank(chunk)
            has_status = has_status or (text != "" and not is_blank)
        elif time.monotonic() - last_sent >= seconds and (has_status or events.turn.has_begun):
            buffered += KEEP_ALIVE
            has_status = True
        if buffered and has_status:
            yield buffered
            buffered = ""
            last_sent = time.monotonic()
    try:
        last = events.format_result(await _result(task))
    except Exception as error:
        if not has_status:
            raise
        last = events.format_error(_failure(error))
    yield buffered + last


async def _change(runtime: Runtime, call: Change) -> dict[str, Any]:
    id = call.session_id
    actor = call.actor
    try:
        await runtime.before_change(call)
        if call.fork:
            await runtime.sessions.fork(call)
            return {"session_id": id, "fork": call.fork, "turn": call.turns}
        await runtime.sessions.end(id, actor)
    except AgentError as error:
        action = "forked" if call.fork else "ended"
        log.warning("session %s: not %s: %s", id, action, f"{error.type} {error.detail}".rstrip())
        raise
    return {"session_id": id, "ended": True}


def body_of(result: TurnResult) -> dict[str, Json]:
    """Return the response body of a turn; a waiting turn has no reply."""
    body: dict[str, Json] = {"session_id": result.session_id, "turn": result.turn}
    if result.waiting:
        calls = result.waiting
        body["waiting"] = [{"id": it.id, "tool": it.name, "input": it.input} for it in calls]
    else:
        if result.model:  # a replay calls no model
            body["model"] = result.model
        if result.reply:
            body["reply"] = result.reply
    return body | cast(dict[str, Json], result.marks)


def _watch(request: Request, task: asyncio.Task[Any]) -> None:
    """Cancel a task if the client disconnects. Call this after the body has been read."""

    async def wait() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    watch = asyncio.create_task(wait())
    watch.add_done_callback(lambda _: task.cancel())
    task.add_done_callback(lambda _: watch.cancel())


async def _result(task: asyncio.Task[Any]) -> Any:
    await asyncio.wait({task})
    if task.cancelled():  # by a shutdown or a disconnect
        raise AgentError("draining")
    return task.result()


def _event(name: str, data: Any) -> str:
    return f"{name}data: {serialize(data).decode()}\n\n"


async def _fail(request: Request, error: Exception) -> Response:
    failure = _failure(error)
    response = JSONResponse(failure.body, failure.status, contract.NO_SNIFF)
    if isinstance(error, HTTPException):
        response.headers.update(error.headers or {})
    if re.fullmatch(contract.SESSION_ID, getattr(request.state, "session_id", "")):
        response.headers[SESSION_HEADER] = request.state.session_id
    if failure.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if failure.retry_after:
        response.headers["Retry-After"] = str(failure.retry_after)
    if failure.status == 405:
        matching = (route for route in request.app.routes if route.matches(request.scope)[0].value)
        methods = {method for route in matching for method in route.methods}
        response.headers["Allow"] = ", ".join(sorted(methods))
    return response


def _failure(error: Exception) -> AgentError:
    if isinstance(error, ClientDisconnect):  # the request is incomplete
        return AgentError("request_timeout")
    if isinstance(error, HTTPException):
        return _http_failure(error)
    if isinstance(error, AgentError):
        return error
    log_unexpected(error)  # from a route, outside a turn
    return AgentError("internal_error", "Internal error.", describe(error))


def _http_failure(error: HTTPException) -> AgentError:
    """Convert an error of the router or of a handler, and keep its status and message."""
    status = error.status_code
    type = HTTP_TYPES.get(status, "internal_error" if status >= 500 else "invalid_request")
    is_default = error.detail == responses.get(status)  # the router has no message of its own
    failure = AgentError(type, "" if is_default and status in HTTP_TYPES else error.detail)
    failure.status = status
    return failure
