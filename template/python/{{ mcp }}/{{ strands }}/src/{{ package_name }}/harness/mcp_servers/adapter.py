"""Converts tools of MCP servers to tools of Strands."""

from collections.abc import Awaitable, Callable
from typing import Any

from strands.tools.tools import PythonAgentTool
from strands.types.tools import ToolResult, ToolUse


def to_tool(
    name: str,
    description: str,
    schema: dict[str, Any],
    call: Callable[[dict[str, Any]], Awaitable[str]],
) -> PythonAgentTool:
    """Return a tool of the framework; error messages are for the model."""

    async def run(tool_use: ToolUse, **_: Any) -> ToolResult:
        text = await call(tool_use["input"])
        return {
            "toolUseId": tool_use["toolUseId"],
            "status": "success",
            "content": [{"text": text}],
        }

    spec: Any = {"name": name, "description": description, "inputSchema": {"json": schema}}
    return PythonAgentTool(name, spec, run)
