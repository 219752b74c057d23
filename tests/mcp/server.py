"""An MCP server with good and bad tools, over stdio or, with a port, over streamable HTTP.

A second number says how many calls of `sound` it rejects, all at once: a replica of the server does
not know their session.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Image, MCPServer
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

server = MCPServer("example")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(name="word_count")
def own_count(text: str) -> str:
    """Count in another way than the agent's own tool."""
    return f"{len(text)} characters"


@server.tool()
async def wait(seconds: float) -> str:
    """Answer late."""
    await anyio.sleep(seconds)
    return "waited"


@server.tool()
def long_text(size: int) -> str:
    """Answer at length."""
    return "x" * size


@server.tool()
def picture() -> Image:
    """Answer without a text."""
    return Image(data=b"GIF89a", format="gif")


@server.tool()
def fails() -> str:
    """Fail."""
    raise ValueError("no such thing")


@server.tool()
def dies() -> str:
    """End the process in the middle of a call."""
    os._exit(3)


@server.tool()
def reads(name: str) -> str:
    """Read an environment variable."""
    return os.environ.get(name, "unset")


@server.tool()
def folder() -> str:
    """Tell in which folder this process runs."""
    return str(Path.cwd())


@server.tool()
def process() -> str:
    """Tell which process this is."""
    return f"process {os.getpid()}"


@server.tool()
def sound() -> str:
    """Answer at once."""
    return "sound"


@server.tool()
async def note(runs: str, end: str) -> str:
    """Write a line for each run, and answer when the file `end` exists."""
    with Path(runs).open("a") as file:
        file.write("run\n")
    while not Path(end).exists():
        await anyio.sleep(0.05)
    return "noted"


class Forgetful:
    """The server over HTTP; it does not know the session of the first calls of `sound`."""

    def __init__(self, rejections: int) -> None:
        self._app = server.streamable_http_app()
        self._rejections = rejections
        self._are_all_here = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        messages = [await receive()]
        if self._rejections and b'"sound"' in messages[0].get("body", b""):
            self._rejections -= 1
            if not self._rejections:
                self._are_all_here.set()
            await self._are_all_here.wait()
            error = {"code": -32001, "message": "Session not found"}
            response = JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 404)
            await response(scope, receive, send)
            return

        async def receive_again() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, receive_again, send)


if __name__ == "__main__":
    if os.environ.get("START_LATE"):
        time.sleep(float(os.environ["START_LATE"]))
    options: dict[str, Any] = {}
    if len(sys.argv) > 2:
        uvicorn.run(Forgetful(int(sys.argv[2])), port=int(sys.argv[1]), log_level="error")
        sys.exit()
    if len(sys.argv) > 1:
        options = {"transport": "streamable-http", "host": "127.0.0.1", "port": int(sys.argv[1])}
    server.run(**options)
