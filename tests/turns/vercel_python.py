"""The tools of the tests, and the answers of a model that is asked for a value."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import ai
import pytest
from my_agent import agent as module
from my_agent.harness import Data, Runtime, Source, TurnRequest, current_turn
from script import Reply

RUNTIME: Runtime | None = None
RUNNING_TOOLS = list[int]()
running = 0


@ai.tool
async def research() -> dict[str, Any]:
    """Look something up."""
    await current_turn().emit(Data("progress", {"pages": 1}))
    await current_turn().emit(Source("https://example.com/1", "One"))
    return {"found": 1}


@ai.tool
async def generate() -> ai.StreamingStatusTool[Any]:
    """Work in steps."""
    yield {"step": 1}
    yield {"step": 2}
    yield "generated"


@ai.tool
async def charge() -> str:
    """Ask a specialist."""
    current_turn().charge(input_tokens=4000, output_tokens=2000)
    return "asked"


@ai.tool
async def make_refund(amount: int) -> str:
    """Refund an amount."""
    if amount < 0:
        raise ValueError("no")
    return f"refunded {amount}"


@ai.tool
async def delegate() -> str:
    """Let another turn do it."""
    assert RUNTIME
    return (await RUNTIME.spawn(TurnRequest("inner", "Count."))).reply


@ai.tool
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
    return lambda value: [Reply(json.dumps(value))]
