"""The tools of the AI SDK with other answers, and a model that follows a script."""

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


def stubbed(tool: ai.AgentTool, answer: Callable[[dict[str, Any]], Awaitable[str]]) -> ai.AgentTool:
    """Return a tool that looks the same, and answers this."""

    async def run(**given: Any) -> str:
        return await answer(given)

    return ai.AgentTool(tool=tool.tool, fn=run)


def scripted(steps: list[Any]) -> ai.Model:
    """Return a model that takes one step in each call: a text, or a call of a tool."""
    return ai.Model(id="offline", provider=Scripted(steps))


class Scripted(Offline):
    """Takes the next step, whatever the request is."""

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
    """Return the turns of a stored session: prompt, calls of tools, reply."""
    turns: list[dict[str, Any]] = []
    calls: dict[str, dict[str, Any]] = {}
    for message in map(ai.messages.Message.model_validate, messages):
        if message.role == "user":
            turns.append({"prompt": message.text, "calls": [], "reply": ""})
        for use in message.tool_calls if turns else []:
            given = as_tool_call(use)
            call = {"tool": given.name, "input": given.input, "answer": "", "failed": False}
            calls[use.tool_call_id] = call
            turns[-1]["calls"].append(call)
        for done in message.tool_results:
            if done.tool_call_id in calls:
                answer = as_tool_result(done).text
                calls[done.tool_call_id] |= {"answer": answer, "failed": done.is_error}
        if message.role == "assistant" and turns:
            turns[-1]["reply"] += message.text
    return turns
