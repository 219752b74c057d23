"""The agent of the random schedules: one tool runs at once, another one asks for an approval."""

import json
from collections.abc import Callable
from typing import Any

from strands import ToolContext, tool
from strands.vended_interventions.hitl import HumanInTheLoop

SYSTEM_PROMPT = "You are a helpful assistant."
ran: Callable[[str], object] = print


@tool(context=True)
async def look_up(order_id: str, tool_context: ToolContext) -> str:
    """Look up an order."""
    ran(order_id)
    tool_context.agent.state.set("seen", order_id)
    return "found"


@tool
async def delete_order(order_id: str) -> str:
    """Delete an order."""
    ran(order_id)
    return "deleted"


TOOLS: list[Any] = [look_up, delete_order]
INTERVENTIONS = [HumanInTheLoop(allowed_tools=["look_up"])]


def with_calls(event: dict[str, Any], calls: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """What a model streams in place of an event, so that it calls these tools, by name and id."""
    if "toolUse" in event.get("contentBlockDelta", {}).get("delta", {}):
        return []  # the arguments of the call that is replaced
    if "contentBlockStart" not in event:
        return [event]
    events: list[dict[str, Any]] = []
    for name, id in calls:
        delta = {"toolUse": {"input": json.dumps({"order_id": id})}}
        events.append(
            {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": id}}}}
        )
        events += [{"contentBlockDelta": {"delta": delta}}, {"contentBlockStop": {}}]
    return events[:-1]  # the last block is ended by the event that follows
