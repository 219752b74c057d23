"""A tool that tries to end the process, as argparse does with wrong arguments."""

import os
import re
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
from tests.conformance.targets import Target
from tests.conformance.test_turns import goes_on
from tests.installed import NODE

pytestmark = pytest.mark.about("turns")

# Tools that try to end the process: in a call, and in a task of their own.
LEAVING_PYTHON = """
import asyncio, builtins, threading
from {module} import tool
from my_agent import agent
from my_agent import main

async def leave(text: str) -> str:
    "Leave."
    raise getattr(builtins, text)(2)

async def leave_in_a_task(text: str) -> str:
    "Leave."
    await asyncio.gather(leave(text))

async def leave_in_a_thread(text: str) -> str:
    "Leave."
    await asyncio.to_thread(lambda: asyncio.run(leave(text)))

tasks = []

async def leave_later(text: str) -> str:
    "Leave."
    tasks.append(asyncio.create_task(leave(text)))
    return "later"

async def leave_a_thread(text: str) -> str:
    "Leave."
    threading.Thread(target=lambda: asyncio.run(leave(text))).start()
    return "later"

async def fail_later(text: str) -> str:
    "Fail."
    threading.Thread(target=lambda: dict()["secret"]).start()
    return "later"

tools = (leave, leave_in_a_task, leave_in_a_thread, leave_later, leave_a_thread, fail_later)
agent.TOOLS += map(tool, tools)
main.cli()
"""
LEAVING_TYPESCRIPT = """
const match = String.prototype.match;
String.prototype.match = function (pattern) {
  const error = new Error();
  if (this == "rejects") void Promise.reject(error);
  if (this == "throws") setTimeout(() => { throw null });
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
            ("leave_later", "SystemExit"),
            ("leave_a_thread", "SystemExit"),
        )
    ],
    "typescript": [
        Call("word_count", {"text": text}) for text in ("process.exit", "rejects", "throws")
    ],
}
# What the log then says of errors that no turn awaits.
LOGGED = {"python": ["SystemExit"] * 3, "typescript": ["Error", "null"]}


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
    language = "typescript" if fleet.target.is_node else "python"
    for call in LEAVING[language]:
        goes_on(Chat(leaving, provider), call)
    gate.set()
    assert running.reply().turn == 1
    assert leaving.get("/ping").status == 200
    assert re.findall(r" ERROR (.+)\n", leaving.log) == LOGGED[language]


# What a conversation types, and what the log then says.
LATE = {
    "python": (("leave_later", "leave_a_thread", "fail_later"), ["KeyError"] + ["SystemExit"] * 2),
    "typescript": (("throws", "rejects"), ["Error", "null"]),
}


@pytest.mark.rows(where=lambda row: not row["target"].store)
def test_a_late_error_of_a_tool_does_not_end_chat(target: Target) -> None:
    project = target.project()
    texts, logged = LATE["typescript" if target.is_node else "python"]
    if target.is_node:
        preload = f"data:text/javascript,{LEAVING_TYPESCRIPT}"
        command = [str(NODE), "--import", preload, "src/main.ts"]
        calls = [f"use word_count: {text}" for text in texts]
    else:
        module = "strands" if target.name.startswith("strands") else "ai"
        code = LEAVING_PYTHON.format(module=module)
        command = [str(project / ".venv" / "bin" / "python"), "-c", code]
        calls = [f"use {tool}: SystemExit" for tool in texts]
    done = subprocess.run(
        [*command, "chat"],
        cwd=project,
        env={"PATH": os.environ["PATH"]},
        input="\n".join([*calls, "Hello.", ""]),
        capture_output=True,
        text=True,
    )
    assert 'you said: "Hello."' in done.stdout, done
    found = sorted(re.findall(r" ERROR (.+)\n", done.stderr))
    if target.is_node:  # the conversation from a pipe may end before the last error
        assert found, done
        assert {*found} <= {*logged}, done
    else:
        assert found == logged, done
    assert done.returncode == 0


FAILING = {
    "python": """
from my_agent import agent, main
agent.len = lambda words: {}[words[0]]
main.cli()
""",
    "typescript": """
const match = String.prototype.match;
String.prototype.match = function (pattern) {
  if (this == "secret") throw new RangeError(this);
  return match.call(this, pattern);
};
""",
}


@pytest.mark.rows(where=lambda row: not row["target"].store)
def test_the_log_names_the_line_of_a_tool_that_failed(target: Target) -> None:
    project = target.project()
    if target.is_node:
        preload = f"data:text/javascript,{FAILING['typescript']}"
        command = [str(NODE), "--import", preload, "src/main.ts"]
        file, kind, tool = "src/agent.ts", "RangeError", "match"
    else:
        command = [str(project / ".venv" / "bin" / "python"), "-c", FAILING["python"]]
        file, kind, tool = "src/my_agent/agent.py", "KeyError", "len("
    done = subprocess.run(
        [*command, "chat"],
        cwd=project,
        env={"PATH": os.environ["PATH"]},
        input="use word_count: secret\n",
        capture_output=True,
        text=True,
    )
    found = re.search(rf"WARNING tool word_count: {kind} at {file}:(\d+)", done.stderr)
    assert found, done
    assert tool in (project / file).read_text().splitlines()[int(found[1]) - 1]
    assert "secret" not in done.stderr
