"""A tool that tries to end the process, as argparse does with wrong arguments."""

import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.chat import Chat
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import Call, Hold
from tests.conformance.test_turns import goes_on
from tests.installed import NODE

pytestmark = pytest.mark.about("turns")

# Tools that try to end the process: in a call, and in a task of their own.
LEAVING_PYTHON = """
import asyncio, builtins
from {module} import tool
from app import agent, main

async def leave(text: str) -> str:
    "Leave."
    raise getattr(builtins, text)(2)

async def leave_in_a_task(text: str) -> str:
    "Leave."
    await asyncio.gather(leave(text))

async def leave_in_a_thread(text: str) -> str:
    "Leave."
    await asyncio.to_thread(lambda: asyncio.run(leave(text)))

agent.TOOLS += map(tool, (leave, leave_in_a_task, leave_in_a_thread))
main.cli()
"""
LEAVING_TYPESCRIPT = """
const match = String.prototype.match;
String.prototype.match = function (pattern) {
  return this == "process.exit" ? process.exit(2) : match.call(this, pattern);
};
"""
LEAVING = {
    "python": [
        Call(tool, {"text": error})
        for tool, error in (
            ("leave", "SystemExit"),
            ("leave", "KeyboardInterrupt"),
            ("leave", "GeneratorExit"),
            ("leave_in_a_task", "SystemExit"),
            ("leave_in_a_thread", "SystemExit"),
            ("leave_in_a_thread", "KeyboardInterrupt"),
        )
    ],
    "typescript": [Call("word_count", {"text": "process.exit"})],
}


@pytest.fixture
def leaving(fleet: Fleet) -> Iterator[Server]:
    """A server with tools that try to end it."""
    framework, language = fleet.target.name.split("-")[:2]

    def command(project: Path) -> list[str]:
        if language == "python":
            code = LEAVING_PYTHON.format(module="strands" if framework == "strands" else "ai")
            return [str(project / ".venv" / "bin" / "python"), "-c", code, "serve"]
        preload = f"data:text/javascript,{LEAVING_TYPESCRIPT}"
        return [str(NODE), "--import", preload, str(project / "src" / "main.ts"), "serve"]

    target = replace(fleet.target, command=command, start=subprocess.Popen)
    server = Server(target, fleet.folder, fleet.provider, {})
    yield server
    server.stop()


@pytest.mark.rows(where=lambda row: not row["target"].store)
def test_a_tool_that_ends_the_process_ends_nothing(
    leaving: Server, provider: Provider, gate: threading.Event, fleet: Fleet
) -> None:
    other = Chat(leaving, provider)
    running = other.start("Meanwhile.", ["Well, ", Hold(gate), "done."])
    assert running.event() == ("message", "Well, ")
    for call in LEAVING["python" if "python" in fleet.target.name else "typescript"]:
        goes_on(Chat(leaving, provider), call)
    gate.set()
    assert running.reply().turn == 1
    assert leaving.get("/ping").status == 200
