"""An agent with a tool that providers refuse."""

from typing import Any

from strands.tools.tools import PythonAgentTool

SYSTEM_PROMPT = "You are a helpful assistant."
POINT = {"type": "array", "items": [{"type": "number"}, {"type": "number"}]}
SCHEMA = {"type": "object", "properties": {"point": POINT}}
SPEC: Any = {"name": "draw", "description": "x" * 1100, "inputSchema": {"json": SCHEMA}}


async def draw(tool_use: Any, **_: Any) -> Any:
    return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": "ok"}]}


TOOLS = [PythonAgentTool("draw", SPEC, draw)]
