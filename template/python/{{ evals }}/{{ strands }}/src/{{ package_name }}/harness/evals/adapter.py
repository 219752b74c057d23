"""Stubbed tools and a scripted model for Strands."""

import json
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any

from strands.tools.tools import PythonAgentTool
from strands.types.streaming import StreamEvent
from strands.types.tools import ToolResult, ToolUse

from ..echo_model import OfflineModel


def names_of(tools: Iterable[Any]) -> set[str]:
    """Return the names of tools."""
    return {getattr(tool, "tool_name", "") for tool in tools}


def stub_tool(tool: Any, answer: Callable[[dict[str, Any]], Awaitable[str]]) -> PythonAgentTool:
    """Return a tool with the same name and schema that returns `answer`."""

    async def run(tool_use: ToolUse, **_: Any) -> ToolResult:
        status: Any = "success"
        try:
            text = await answer(tool_use["input"])
        except RuntimeError as error:
            status = "error"
            text = str(error)
        content: Any = [{"text": text}]
        return ToolResult(toolUseId=tool_use["toolUseId"], status=status, content=content)

    return PythonAgentTool(tool.tool_name, tool.tool_spec, run)


def scripted_model(steps: list[Any]) -> OfflineModel:
    """Return a model whose calls reply with the next step, which is text or a tool call."""
    return ScriptedModel(steps)


class ScriptedModel(OfflineModel):
    """Follows a script and ignores the request."""

    def __init__(self, steps: list[Any]) -> None:
        self._steps = [*steps]

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterable[StreamEvent]:
        step = self._steps.pop(0) if self._steps else ""
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(step, str):
            yield {"contentBlockDelta": {"delta": {"text": step}}}
        else:
            tool: Any = {"name": step["tool"], "toolUseId": f"call_{len(messages)}"}
            yield {"contentBlockStart": {"start": {"toolUse": tool}}}
            arguments = json.dumps(step.get("input", {}))
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": arguments}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(step, str) else "tool_use"}}


def turns_of(messages: list[Any]) -> list[dict[str, Any]]:
    """Return the turns of a stored session: prompt, tool calls and reply."""
    turns: list[dict[str, Any]] = []
    calls: dict[str, dict[str, Any]] = {}
    for message in messages:
        for block in message["content"]:
            if "text" in block and message["role"] == "user":
                turns.append({"prompt": block["text"], "calls": [], "reply": ""})
            elif "text" in block and turns:
                turns[-1]["reply"] += block["text"]
            elif use := block.get("toolUse") if turns else None:
                call = {"tool": use["name"], "input": use["input"], "answer": "", "failed": False}
                calls[use["toolUseId"]] = call
                turns[-1]["calls"].append(call)
            elif (result := block.get("toolResult")) and result["toolUseId"] in calls:
                texts = [part.get("text", "") for part in result["content"]]
                answer = {"answer": "".join(texts), "failed": result["status"] == "error"}
                calls[result["toolUseId"]] |= answer
    return turns
