"""An agent with a tool that providers refuse."""

from typing import Any

import ai

SYSTEM_PROMPT = "You are a helpful assistant."
POINT = {"type": "array", "items": [{"type": "number"}, {"type": "number"}]}
SCHEMA = {"type": "object", "properties": {"point": POINT}}
SPEC = ai.types.tools.ToolSpec(description="x" * 1100, params=SCHEMA)


async def draw(**_: Any) -> str:
    return "ok"


TOOLS = [ai.AgentTool(tool=ai.Tool(kind="function", name="draw", spec=SPEC), fn=draw)]
