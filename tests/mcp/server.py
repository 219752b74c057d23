"""An MCP server with good and bad tools, over stdio or, with a port, over streamable HTTP."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Image, MCPServer

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


if __name__ == "__main__":
    if os.environ.get("START_LATE"):
        time.sleep(float(os.environ["START_LATE"]))
    options: dict[str, Any] = {}
    if len(sys.argv) > 1:
        options = {"transport": "streamable-http", "host": "127.0.0.1", "port": int(sys.argv[1])}
    server.run(**options)
