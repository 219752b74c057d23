"""The agent of the random schedules: one tool runs at once, another one asks for an approval."""

from collections.abc import Callable
from typing import Any

import ai

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
