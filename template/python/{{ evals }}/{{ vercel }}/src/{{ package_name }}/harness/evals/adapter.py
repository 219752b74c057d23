"""Stubbed tools and a scripted model for the AI SDK."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any

import ai
from ai import events

from ..echo_model import Offline
from ..turn import as_tool_call, as_tool_result


def names_of(tools: Iterable[Any]) -> set[str]:
    """Return the names of tools."""
    return {tool.name for tool in tools}


def stub_tool(
    tool: ai.AgentTool, answer: Callable[[dict[str, Any]], Awaitable[str]]
) -> ai.AgentTool:
    """Return a tool with the same name and schema that returns `answer`."""

    async def run(**arguments: Any) -> str:
        return await answer(arguments)

    return ai.AgentTool(tool=tool.tool, fn=run)


def scripted_model(steps: list[Any]) -> ai.Model:
    """Return a model whose calls reply with the next step, which is text or a tool call."""
    return ai.Model(id="offline", provider=ScriptedModel(steps))


class ScriptedModel(Offline):
    """Follows a script and ignores the request."""

    def __init__(self, steps: list[Any]) -> None:
        super().__init__()
        self._steps = [*steps]

    async def stream(
        self, model: ai.Model, messages: list[ai.messages.Message], **_: Any
    ) -> AsyncGenerator[events.Event]:
        step = self._steps.pop(0) if self._steps else ""
        yield events.StreamStart()
        if isinstance(step, str):
            yield events.TextStart()
            yield events.TextDelta(chunk=step)
            yield events.TextEnd()
        else:
            id = f"call_{len(messages)}"
            yield events.ToolStart(tool_call_id=id, tool_name=step["tool"])
            yield events.ToolDelta(tool_call_id=id, chunk=json.dumps(step.get("input", {})))
            yield events.ToolEnd(tool_call_id=id, tool_call=ai.messages.DUMMY_TOOL_CALL)
        yield events.StreamEnd(finish_reason="stop" if isinstance(step, str) else "tool_call")


def turns_of(messages: list[Any]) -> list[dict[str, Any]]:
    """Return the turns of a stored session: prompt, tool calls and reply."""
    turns: list[dict[str, Any]] = []
    calls: dict[str, dict[str, Any]] = {}
    for message in map(ai.messages.Message.model_validate, messages):
        if message.role == "user":
            turns.append({"prompt": message.text, "calls": [], "reply": ""})
        for use in message.tool_calls if turns else []:
            tool_call = as_tool_call(use)
            call = {"tool": tool_call.name, "input": tool_call.input, "answer": "", "failed": False}
            calls[use.tool_call_id] = call
            turns[-1]["calls"].append(call)
        for result in message.tool_results:
            if result.tool_call_id in calls:
                answer = as_tool_result(result).text
                calls[result.tool_call_id] |= {"answer": answer, "failed": result.is_error}
        if message.role == "assistant" and turns:
            turns[-1]["reply"] += message.text
    return turns
