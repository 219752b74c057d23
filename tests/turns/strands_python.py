"""The tools of the tests, and the answers of a model that is asked for a value."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from my_agent import agent as module
from my_agent.harness import Data, Source, current_turn
from script import Reply, ToolCall
from strands import tool


@tool
async def research() -> dict[str, Any]:
    """Look something up."""
    await current_turn().emit(Data("progress", {"pages": 1}))
    await current_turn().emit(Source("https://example.com/1", "One"))
    return {"found": 1}


@tool
async def generate() -> AsyncIterator[Any]:
    """Work in steps."""
    yield {"step": 1}
    yield {"step": 2}
    yield "generated"


@tool
async def charge() -> str:
    """Ask a specialist."""
    current_turn().charge(input_tokens=4000, output_tokens=2000)
    return "asked"


@tool
async def make_refund(amount: int) -> str:
    """Refund an amount."""
    if amount < 0:
        raise ValueError("no")
    return f"refunded {amount}"


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOOLS", [research, generate, charge, make_refund])
    monkeypatch.setattr(module, "FINAL_TOOLS", ["make_refund"], raising=False)


@pytest.fixture
def value_script() -> Callable[[dict[str, Any]], list[Any]]:
    return lambda value: [Reply("Let me see."), ToolCall("Ticket", value)]
