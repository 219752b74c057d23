"""A server and its connection, which reconnects; calls have a time limit."""

import asyncio
import json
import logging
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from threading import Thread
from typing import TYPE_CHECKING, Any

import anyio

from ..contract import well_formed, well_formed_value
from ..deadline import time_limit
from ..log import describe
from .file import Declaration
from .schemas import NotRepairableError, RepairedTool

if TYPE_CHECKING:
    import httpx2
    import mcp_types

log = logging.getLogger(__name__)
RETRY_SECONDS = 5  # turns try a server at most this often
CLOSE_SECONDS = 7  # the SDK kills a process that does not end 4 seconds after its input
MAX_LISTED = 10_000  # tools of a server
MAX_MESSAGES = 1000  # of a server during a call, before the call fails
MAX_ERROR_CHARS = 200  # of a server's error message
MAX_RECEIVED_CHARS = 100_000  # of a result, before MAX_RESULT_CHARS cuts it
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # may be half of a pair
# A server's process needs these variables behind a proxy or with a private CA.
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
# Print the process id, which is also the group id: the SDK does not expose it.
PRINT_PID = ("-c", 'echo $$ >&2; exec "$0" "$@"')
PASSED_VARIABLES = (*PROXIES, *(name.lower() for name in PROXIES), *CERTIFICATES)
# Messages of the SDK itself, for a lost connection and for a response without a message.
LOST_CONNECTION = {"Connection closed", "SSE stream ended without a response"}
NO_MESSAGE = {"Not Found", "Server returned an error response", "Session terminated"}
NO_OUTCOME = "the connection was lost, so the outcome of the call is unknown"
LOST_SESSION = object()  # the data of the error of a call that did not run


@dataclass(frozen=True)
class Tool:
    """A tool as its server lists it; only the name is known to be a string."""

    name: str
    declared: dict[str, Any]

    @cached_property
    def repaired(self) -> RepairedTool | NotRepairableError:
        """The declaration for model providers, or the reason for its absence."""
        description = self.declared.get("description")
        has_description = isinstance(description, str) and description.strip()
        try:
            # No provider accepts an empty description.
            text = str(description) if has_description else self.name
            return RepairedTool(text, self.declared.get("inputSchema"))
        except NotRepairableError as error:
            return error
        except Exception as error:  # noqa: BLE001 (the other tools must stay available)
            log.debug("a declaration cannot be repaired: %s", describe(error))
            return NotRepairableError("its schema is not valid")


OnTools = Callable[[list[Tool]], None]


class ServerDown(Exception):
    """The server cannot be used; the message is the reason."""


class ToolFailed(Exception):
    """A tool failed; the model gets the message."""


class Connection:
    """A connection to a server; its own task opens and closes all resources."""

    def __init__(self, declared: Declaration, seconds: int, on_tools: OnTools) -> None:
        self._declared = declared
        self._status = 0  # of the last failed request
        self._rejected = set[object]()  # the ids of calls whose session the server did not know
        self._calls = 0  # number of running calls
        self._last_line = ""
        self._reader = Thread()
        self._seconds = seconds
        self._on_tools = on_tools
        self._is_listing = False
        self._group = 0  # process group of the server
        self._received = 0  # number of messages
        self.problem = "the connection was lost"  # the reason for the end
        self.has_lost_session = False
        self.over = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.tools: asyncio.Future[list[Tool]] = loop.create_future()
        self.task = asyncio.create_task(self._run())
        loop.call_later(seconds, self._time_out)

    @property
    def is_down(self) -> bool:
        """Whether further calls need another connection."""
        return self.has_lost_session or self.over.is_set()

    async def call(self, name: str, arguments: dict[str, Any]) -> "mcp_types.CallToolResult | None":
        """Call a tool; return None if the server lost the session and did not run the call."""
        from mcp.shared.exceptions import MCPError

        received = self._received
        self._calls += 1
        work = asyncio.create_task(self._client.call_tool(name, arguments))
        try:
            await asyncio.wait({work, self.task}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ServerDown(NO_OUTCOME)
            return work.result()
        except asyncio.CancelledError:
            if self._received - received > MAX_MESSAGES:  # close: the server would keep a CPU busy
                self.problem = f"it sent more than {MAX_MESSAGES} messages during a call"
                self.over.set()
            raise
        except MCPError as error:
            if error.data is not LOST_SESSION:
                raise
            self.has_lost_session = True
            return None
        finally:
            work.cancel()
            self._calls -= 1
            if self.has_lost_session and self._calls == 0:  # running calls keep their connection
                self.over.set()

    def close(self) -> None:
        """Begin to close the connection."""
        self._fail("it was closed")
        self.over.set()

    def _time_out(self) -> None:
        last = self._last_line and f": {self._last_line}"
        self._fail(f"it did not answer within {self._seconds} seconds{last}")

    def _fail(self, reason: str) -> None:
        """End an unfinished attempt to connect."""
        if not self.tools.done():
            self.tools.set_exception(ServerDown(reason))
            self.over.set()
            self.task.cancel()

    async def _run(self) -> None:
        try:
            if self._declared.problem:
                raise ServerDown(self._declared.problem)
            from mcp.client import Client

            # Every server supports the handshake of protocol versions before 2026.
            client = Client(self._transport(), mode="legacy", message_handler=self._receive)
            async with client as self._client:
                tools = await _list_tools(self._client)
                if not self.tools.done():
                    self.tools.set_result(tools)
                await self.over.wait()
        except Exception as error:  # noqa: BLE001 (a server can cause any error)
            await asyncio.to_thread(self._reader_ends)
            self._fail(self._reason(error))
        finally:
            self.over.set()

    async def _receive(self, message: object) -> None:
        """List the tools again after a notification that they changed."""
        if type(message).__name__ == "ToolListChangedNotification" and not self._is_listing:
            self._is_listing = True
            self._work = asyncio.create_task(self._list_again())

    async def _list_again(self) -> None:
        await asyncio.sleep(0.3)  # notifications may come in bursts
        self._is_listing = False
        with suppress(Exception):
            async with time_limit(self._seconds):
                self._on_tools(await _list_tools(self._client))

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[tuple[Any, Any]]:
        """Open the streams; the connection ends with its input stream."""
        declared = self._declared
        async with AsyncExitStack() as stack:
            if declared.url:
                import httpx2
                from mcp.client.streamable_http import streamable_http_client

                client = httpx2.AsyncClient(
                    headers=declared.headers,
                    timeout=httpx2.Timeout(30, read=None),  # each call has its own time limit
                    follow_redirects=True,
                    event_hooks={"request": [self._guard], "response": [self._inspect]},
                )
                await stack.enter_async_context(client)
                transport = streamable_http_client(declared.url, http_client=client)
                source, sink = await stack.enter_async_context(transport)
            else:
                from mcp.client.stdio import StdioServerParameters, stdio_client

                variables = {
                    name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ
                }
                shell = shutil.which("sh") if os.name == "posix" else None
                line = [declared.command, *declared.args]
                line = [shell, *PRINT_PID, *line] if shell else line
                command = StdioServerParameters(
                    command=line[0],
                    args=line[1:],
                    env=variables | declared.env,
                    cwd=declared.cwd,
                    encoding_error_handler="replace",  # otherwise one invalid byte ends the stream
                )
                errors, stderr = os.pipe()
                arguments = (errors, bool(shell))
                self._reader = Thread(target=self._read_errors, args=arguments, daemon=True)
                self._reader.start()
                stack.callback(self._end_group)
                with os.fdopen(stderr, "w", encoding="utf-8") as stream:
                    source, sink = await stack.enter_async_context(stdio_client(command, stream))
            sender, receiver = anyio.create_memory_object_stream[Any]()
            group = await stack.enter_async_context(anyio.create_task_group())
            group.start_soon(self._relay, source, sender)
            yield receiver, sink
            group.cancel_scope.cancel()

    async def _relay(self, source: Any, sender: Any) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with sender:
                async for received in source:
                    self._received += 1
                    message = _recover(received)
                    _loosen(message)
                    self._mark(message)
                    await sender.send(message)
        self.over.set()

    def _mark(self, message: Any) -> None:
        """Mark the error of a call that the server did not run."""
        answer = getattr(message, "message", None)
        error = getattr(answer, "error", None)
        if error is not None and getattr(answer, "id", None) in self._rejected:
            error.data = LOST_SESSION

    async def _guard(self, request: "httpx2.Request") -> None:
        """Reject redirects to other hosts, which would get headers and arguments."""
        import httpx2

        origin = httpx2.URL(self._declared.url)
        if (request.url.scheme, request.url.netloc) != (origin.scheme, origin.netloc):
            raise ConnectionError("a redirect to another host")

    async def _inspect(self, response: "httpx2.Response") -> None:
        """Note a failed request; replace lone surrogates in a JSON body."""
        request = response.request
        if request.method == "POST" and response.status_code >= 300:
            self._status = response.status_code
            if response.status_code == 404:
                sent = json.loads(await request.aread())
                if sent.get("method") == "tools/call":
                    self._rejected.add(sent["id"])
        read = response.aread

        async def well_formed_body() -> bytes:
            body = await read()
            with suppress(ValueError, RecursionError):
                if SURROGATE.search(body):
                    return json.dumps(well_formed_value(json.loads(body))).encode()
            return body

        response.aread = well_formed_body  # type: ignore[method-assign]

    def _end_group(self) -> None:
        """Kill the remaining child processes of a server."""
        if sys.platform != "win32" and self._group:
            with suppress(OSError):
                os.killpg(self._group, signal.SIGKILL)

    def _read_errors(self, errors: int, prints_pid: bool) -> None:
        """Keep the last line that a process writes before it answers; drop later lines."""
        with open(errors, encoding="utf-8", errors="replace") as stream:
            while line := stream.readline(1000):
                if prints_pid and not self._group:  # the shell may print a warning first
                    self._group = int(line) if re.fullmatch("[0-9]+\n", line) else 0
                elif line.strip() and not self.tools.done():
                    self._last_line = line.strip()[:200]

    def _reader_ends(self) -> None:
        if self._reader.ident:
            self._reader.join(0.5)

    def _reason(self, error: BaseException) -> str:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ServerDown):
            return str(error)
        if isinstance(error, ValueError):
            return "its answer is not valid"
        if text := _error_text(error):
            status = f"HTTP {self._status}" if self._status else "with an error"
            return f"it answered {status}: {text}"
        if self._status:
            return f"it answered HTTP {self._status}"
        if self._declared.url:
            return f"it cannot be reached: {describe(error)}"
        if self._declared.missing:
            return f"{self._declared.missing} was not found"
        return f"its process ended: {self._last_line or describe(error)}"


class Server:
    """A server of the file: its last connection, and the tools of this connection."""

    def __init__(self, declared: Declaration, seconds: int, on_change: Callable[[], None]) -> None:
        self.declared = declared
        self._seconds = seconds
        self._on_change = on_change
        self.tools: list[Tool] = []
        self.problem = ""  # the reason why it is down
        self._connection: Connection | None = None
        self._tasks = set[asyncio.Task[None]]()
        self._last_attempt = 0.0
        self._is_closed = False

    async def connect(self) -> Connection:
        """Return the connection, opened if needed. Raises ServerDown."""
        connection = self._connection
        if connection is None or connection.is_down:
            connection = self._start_connection()
        await asyncio.shield(connection.tools)
        return connection

    def retry(self) -> None:
        """Reconnect a server that is down, at most every RETRY_SECONDS."""
        is_down = self._connection is None or self._connection.is_down
        elapsed = time.monotonic() - self._last_attempt
        if is_down and not self.declared.problem and elapsed >= RETRY_SECONDS:
            self._start_connection()

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool and return its result as text; error messages are for the model."""
        from mcp.shared.exceptions import MCPError

        server = f"MCP server {self.declared.name}"
        try:
            async with time_limit(self._seconds):
                result = await (await self.connect()).call(name, arguments)
                if result is None:
                    result = await (await self.connect()).call(name, arguments)
        except TimeoutError:
            raise TimeoutError(f"{server} did not answer within {self._seconds} seconds.") from None
        except ServerDown as error:
            raise ConnectionError(f"{server} is down: {error}.") from None
        except MCPError as error:
            if error.message in LOST_CONNECTION:
                raise ConnectionError(f"{server} is down: {NO_OUTCOME}.") from None
            raise ToolFailed(f"{server}: {_cut(error.message)}") from None
        except Exception as error:  # the SDK raises various errors for an invalid answer
            raise ToolFailed(f"{server} sent an invalid answer.") from error
        if result is None:
            raise ConnectionError(f"{server} is down: it does not keep its session.")
        if result.is_error:
            raise ToolFailed(_text(result))
        return _text(result)

    async def close(self) -> None:
        """Close the connection; terminate the process, or kill it."""
        self._is_closed = True
        if self._connection:
            self._connection.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)

    def _start_connection(self) -> Connection:
        self._last_attempt = time.monotonic()
        self._connection = connection = Connection(self.declared, self._seconds, self._update_tools)
        self._tasks.add(connection.task)
        connection.task.add_done_callback(self._tasks.discard)
        connection.task.add_done_callback(lambda _: self._ended(connection))
        connection.tools.add_done_callback(self._connected)
        return connection

    def _ended(self, connection: Connection) -> None:
        if not connection.has_lost_session:  # otherwise, the call has connected again
            self._report(connection.problem)

    def _connected(self, listed: "asyncio.Future[list[Tool]]") -> None:
        if error := listed.exception():
            self._report(str(error))
        else:
            self.problem = ""
            log.info("MCP server %s: connected", self.declared.name)
            self._update_tools(listed.result())

    def _update_tools(self, tools: list[Tool]) -> None:
        self.tools = tools
        self._on_change()

    def _report(self, problem: str) -> None:
        """Store the problem; warn once until the server is connected again."""
        if self._is_closed:
            return
        if not self.problem:
            next_step = "it stays down" if self.declared.problem else "the next turn reconnects"
            log.warning("MCP server %s: %s; %s", self.declared.name, problem, next_step)
        self.problem = self.problem or problem


async def _list_tools(client: Any) -> list[Tool]:
    """Return the tools of a server, page by page, until there are MAX_LISTED."""
    tools = list[Tool]()
    cursor = None
    has_more = client.server_capabilities.tools is not None
    while has_more and len(tools) < MAX_LISTED:
        try:
            page = await client.list_tools(cursor=cursor)
        except ValueError:
            raise ServerDown("its list of tools is not valid") from None
        tools += [Tool(tool.name, tool.meta["declared"]) for tool in page.tools]
        cursor = page.next_cursor
        has_more = cursor is not None
    return tools[:MAX_LISTED]


def _recover(message: Any) -> Any:
    """Return a message without lone surrogates; the SDK rejects them."""
    if not isinstance(message, ValueError):
        return message
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    try:
        error: Any = message  # of pydantic
        value = well_formed_value(json.loads(error.errors()[0]["input"]))
        return SessionMessage(jsonrpc_message_adapter.validate_python(value, by_name=False))
    except (AttributeError, ValueError, TypeError, RecursionError):
        return message


def _loosen(message: Any) -> None:
    """Make the SDK accept any list of tools.

    The SDK rejects the whole list because of one invalid tool. It also rejects a result without
    the structured content of its output schema, although the text is enough.
    """
    result = getattr(getattr(message, "message", None), "result", None)
    if not isinstance(result, dict) or not isinstance(result.get("tools"), list):
        return
    if "content" in result:  # result of a call
        return
    cursor = result.get("nextCursor")
    declared = [tool if isinstance(tool, dict) else {} for tool in result["tools"]]
    result.clear()
    result["tools"] = [
        {
            "name": tool["name"] if isinstance(tool.get("name"), str) else "",
            "inputSchema": {"type": "object"},
            "_meta": {"declared": tool},
        }
        for tool in declared
    ]
    if isinstance(cursor, str):
        result["nextCursor"] = cursor


def _error_text(error: BaseException) -> str:
    """Return a server's error message as one line of printable characters."""
    from mcp.shared.exceptions import MCPError

    if not isinstance(error, MCPError) or error.message in LOST_CONNECTION | NO_MESSAGE:
        return ""
    text = " ".join(error.message.split())[:MAX_ERROR_CHARS]
    return "".join(it if it.isprintable() else f"\\u{ord(it):04x}" for it in text)


def _text(result: "mcp_types.CallToolResult") -> str:
    """Return a result as text for a model."""
    texts = list[str]()
    for block in result.content:
        text = getattr(getattr(block, "resource", block), "text", None)
        if block.type == "resource_link":
            text = " ".join(filter(None, (block.title or block.name, block.uri, block.description)))
        texts.append(f"[{block.type}: left out, it is not text]" if text is None else text)
    if not texts and result.structured_content is not None:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return _cut("\n".join(texts)) or "[empty]"


def _cut(text: str) -> str:
    size = len(text)
    note = f"\n[cut: {size} characters, {MAX_RECEIVED_CHARS} are allowed]"
    return well_formed(text if size <= MAX_RECEIVED_CHARS else text[:MAX_RECEIVED_CHARS] + note)
