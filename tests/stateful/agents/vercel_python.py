"""The agent of the random schedules: one tool runs at once, another one asks for an approval."""

import json
from collections.abc import Callable
from typing import Any

import ai
from ai import events

SYSTEM_PROMPT = "You are a helpful assistant."
ran: Callable[[str], object] = print


@ai.tool
async def look_up(order_id: str) -> str:
    """Look up an order."""
    ran(order_id)
    return "found"


@ai.tool(require_approval=True)
async def delete_order(order_id: str) -> str:
    """Delete an order."""
    ran(order_id)
    return "deleted"


TOOLS: list[Any] = [look_up, delete_order]


def with_calls(event: events.Event, calls: list[tuple[str, str]]) -> list[events.Event]:
    """What a model streams in place of an event, so that it calls these tools, by name and id."""
    if not isinstance(event, events.ToolStart | events.ToolDelta | events.ToolEnd):
        return [event]
    streamed: list[events.Event] = []
    for name, id in calls if isinstance(event, events.ToolStart) else []:
        streamed.append(events.ToolStart(tool_call_id=id, tool_name=name))
        streamed.append(events.ToolDelta(tool_call_id=id, chunk=json.dumps({"order_id": id})))
        streamed.append(events.ToolEnd(tool_call_id=id, tool_call=ai.messages.DUMMY_TOOL_CALL))
    return streamed
