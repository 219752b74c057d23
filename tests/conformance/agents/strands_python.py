"""The agent of this suite: tools that note their runs and know their turn."""

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from strands import Agent, ToolContext, tool
from strands.hooks import BeforeToolCallEvent
from strands.interventions import InterventionAction, Proceed
from strands.vended_interventions.hitl import HumanInTheLoop

from .harness import current_turn
from .harness.settings import read_settings
from .model import build_model

SYSTEM_PROMPT = "You are a helpful assistant. Answer briefly and in plain words."
RUNS = Path(os.environ.get("HOME", "."), "runs")
GATES = RUNS.with_name("gates")  # the tools that ask, by session, in place of ASKING
ASKING = ["delete_order", "pay", "refund"]
WITHOUT = os.environ.get("WITHOUT")  # the tool that a deployment has removed


def asks(tool: str) -> bool:
    """Whether a tool asks for an approval in this turn."""
    with suppress(LookupError, OSError):  # no turn, or no gates
        return tool in json.loads(GATES.read_text()).get(current_turn().session_id, ASKING)
    return tool in ASKING


def note(line: str) -> None:
    with RUNS.open("a") as runs:
        runs.write(f"{line}\n")


async def meet(name: str) -> None:
    """Wait until two turns are here."""
    note(f"meet {name}")
    for _ in range(400):
        if RUNS.read_text().splitlines().count(f"meet {name}") > 1:
            return
        await asyncio.sleep(0.05)


def caller() -> str:
    turn = current_turn()
    return f"{turn.actor} {turn.session_id} {turn.number} {turn.key}"


async def nested() -> str:
    return caller()


try:
    current_turn()
except LookupError as error:
    print(f"outside a turn: {error}", file=sys.stderr, flush=True)


@tool
async def delete_order(order_id: str) -> str:
    """Delete an order."""
    note(f"delete_order {order_id}")
    return f"deleted {order_id}"


@tool
def pay(amount: int | float, memo: str = "") -> str:
    """Pay an amount."""
    note(f"pay {json.dumps([amount, memo])}")
    return "paid"


@tool
async def read_order(order_id: str) -> str:
    """Read an order."""
    note(f"read_order {order_id}")
    return f"order {order_id}"


@tool
async def work(order_id: str) -> str:
    """Work on an order for a moment."""
    note(f"begin {order_id}")
    await asyncio.sleep(0.1)
    note(f"end {order_id}")
    return f"worked on {order_id}"


@tool
async def read_pages(count: int) -> str:
    """Read pages."""
    return "x" * count


@tool
async def my_orders(place: str) -> str:
    """Return the orders of the user."""
    before = caller()
    await meet(place)
    seen = {before, caller(), await nested(), await asyncio.create_task(nested())}
    seen |= {await asyncio.to_thread(caller)}
    return f"orders of {' and '.join(seen)}"


@tool
def my_orders_at_once(place: str) -> str:
    """Return the orders of the user, in a thread."""
    before = caller()
    note(f"meet {place}")
    while RUNS.read_text().splitlines().count(f"meet {place}") < 2:
        time.sleep(0.05)
    return f"orders of {' and '.join({before, caller()})}"


@tool
def wait_for_the_end(name: str) -> str:
    """Wait in a thread until the turn ends."""
    note(f"running {name}")
    note(f"stopped {name} {current_turn().stopped.wait(30)}")
    return "stopped"


@tool
async def summarize(text: str) -> str:
    """Summarize a text."""
    settings, _ = read_settings()
    agent = Agent(model=build_model(settings), callback_handler=None)
    return str(await agent.invoke_async(text))


@tool(context=True)
async def remember(text: str, tool_context: ToolContext) -> str:
    """Remember a text beside the messages."""
    notes = [*(tool_context.agent.state.get("notes") or []), text]
    tool_context.agent.state.set("notes", notes)
    return ", ".join(notes)


@tool
async def photo() -> dict[str, Any]:
    """Take a photo."""
    image = {"format": "gif", "source": {"bytes": b"GIF89a\xff\x00"}}
    return {"status": "success", "content": [{"image": image}, {"text": "a photo"}]}


@tool
async def report(size: int, character: str = "~") -> str:
    """Write a report of so many characters."""
    return character * size


@tool
def refund(order_id: str) -> str:
    """Refund an order, which ends the turn."""
    note(f"refund {order_id}")
    return f"refunded {order_id}"


@tool
def close_order(order_id: str) -> str:
    """Close an order, which ends the turn."""
    note(f"close_order {order_id}")
    return f"closed {order_id}"


FINAL_TOOLS = ["refund", "close_order"]
TOOLS: list[Any] = [
    photo,
    refund,
    close_order,
    report,
    delete_order,
    pay,
    read_order,
    work,
    read_pages,
    my_orders,
    my_orders_at_once,
    wait_for_the_end,
    summarize,
    remember,
]
TOOLS = [tool for tool in TOOLS if tool.tool_name != WITHOUT]


class Gate(HumanInTheLoop):
    """Asks for an approval if the tool asks in this turn."""

    async def before_tool_call(
        self, event: BeforeToolCallEvent, **kwargs: Any
    ) -> InterventionAction:
        """Let other tools run."""
        if not asks(event.tool_use["name"]):
            return Proceed()
        return await super().before_tool_call(event, **kwargs)


INTERVENTIONS = [Gate()]
