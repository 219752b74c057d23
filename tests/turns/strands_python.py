"""The tools of the tests, and the answers of a model that is asked for a value."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from my_agent import agent as module
from my_agent.harness import Data, Runtime, Source, TurnRequest, current_turn
from script import Reply, ToolCall
from strands import tool

RUNTIME: Runtime | None = None
RUNNING_TOOLS = list[int]()
running = 0


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


@tool
async def delegate() -> str:
    """Let another turn do it."""
    assert RUNTIME
    return (await RUNTIME.spawn(TurnRequest("inner", "Count."))).reply


@tool
async def count_running() -> str:
    """Note how many of these calls run at once."""
    global running
    running += 1
    RUNNING_TOOLS.append(running)
    await asyncio.sleep(0.02)
    running -= 1
    return "counted"


TOOLS = [research, generate, charge, make_refund, delegate, count_running]


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOOLS", TOOLS)
    monkeypatch.setattr(module, "FINAL_TOOLS", ["make_refund"], raising=False)


@pytest.fixture
def value_script() -> Callable[[dict[str, Any]], list[Any]]:
    return lambda value: [Reply("Let me see."), ToolCall("Ticket", value)]
