"""The agent of the random schedules: one tool runs at once, another one asks for an approval."""

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
