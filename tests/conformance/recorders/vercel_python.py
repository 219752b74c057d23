"""An agent whose tools record each run with its session and input."""

import json
import os
from pathlib import Path
from typing import Any

import ai

from .harness import current_turn

SYSTEM_PROMPT = "You are a helpful assistant. Answer briefly and in plain words."
RUNS = Path(os.environ.get("HOME", "."), "runs")


def record(name: str, **values: Any) -> None:
    line = json.dumps({"session": current_turn().session_id, "tool": name, "input": values})
    with RUNS.open("a") as runs:
        runs.write(f"{line}\n")


@ai.tool
async def word_count(text: str) -> int:
    """Count the words of a text."""
    record("word_count", text=text)
    return len(text.split())


@ai.tool
async def delete_orders(customer: str | None = None) -> str:
    """Delete the orders of a customer, or of all customers."""
    record("delete_orders", customer=customer)
    return f"deleted orders of {customer or 'ALL CUSTOMERS'}"


@ai.tool
async def list_orders() -> str:
    """List the orders of all customers."""
    record("list_orders")
    return "no orders"


TOOLS: list[Any] = [word_count, delete_orders, list_orders]
