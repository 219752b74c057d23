"""Converts tools of MCP servers to tools of the AI SDK."""

from collections.abc import Awaitable, Callable
from typing import Any

import ai


def to_tool(
    name: str,
    description: str,
    schema: dict[str, Any],
    call: Callable[[dict[str, Any]], Awaitable[str]],
) -> ai.AgentTool:
    """Return a tool of the framework; error messages are for the model."""

    async def run(**arguments: Any) -> str:
        return await call(arguments)

    spec = ai.types.tools.ToolSpec(description=description, params=schema)
    return ai.AgentTool(tool=ai.Tool(kind="function", name=name, spec=spec), fn=run)
