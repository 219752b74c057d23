"""Mistakes in the modules of an owner, and turns that run while a conversation ends."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.installed import NODE, clean_environment, environment, link_environment, rendered
from tests.stores import forks

pytestmark = pytest.mark.slow

PYTHON_HANDLER = "async def answer(request, runtime): ...\n\n\n"
PYTHON_MISTAKES = {
    "name": (
        "routes.py",
        PYTHON_HANDLER + "ROUTES = {'get /orders': answer}",
        "ROUTES 'get /orders' is not a valid route: write it like 'GET /version'.",
    ),
    "taken": (
        "routes.py",
        PYTHON_HANDLER + "ROUTES = {'GET /ping': answer}",
        "ROUTES The harness defines the route 'GET /ping': choose another path.",
    ),
    "value": (
        "routes.py",
        "ROUTES = {'GET /orders': 'answer'}",
        "ROUTES The route 'GET /orders' is neither a handler nor a `Route(handler)`.",
    ),
    "sync": (
        "routes.py",
        "def answer(request, runtime): ...\n\n\nROUTES = {'GET /orders': answer}",
        "ROUTES The handler of the route 'GET /orders' is not async: define it with `async def`.",
    ),
    "parameters": (
        "routes.py",
        PYTHON_HANDLER + "ROUTES = {'GET /{a}/{a}': answer}",
        "ROUTES 'GET /{a}/{a}' is not a valid route: Duplicated param name a at path /{a}/{a}",
    ),
    "final": (
        "agent.py",
        "\nFINAL_TOOLS = ['word_count', 'hand_over']\n",
        "AGENT FINAL_TOOLS names 'hand_over', but no tool has this name.",
    ),
    "missing": ("routes.py", "NOTHING = {}", "ROUTES ROUTES is missing: define it."),
    "tools": ("agent.py", "TOOLS", "AGENT TOOLS is missing: define it."),
    "prompt": ("agent.py", "SYSTEM_PROMPT", "AGENT SYSTEM_PROMPT is missing: define it."),
    "function": (
        "agent.py",
        "TOOLS = [word_count, len]",
        "AGENT len in TOOLS is not a tool: add `@tool`.",
    ),
    "text": (
        "agent.py",
        "TOOLS = ['word_count']",
        "AGENT 'word_count' in TOOLS is not a tool: add `@tool`.",
    ),
    "no list": (
        "agent.py",
        "TOOLS = word_count",
        "AGENT TOOLS is not a list: write it like `TOOLS = [word_count]`.",
    ),
    "no names": (
        "agent.py",
        "\nFINAL_TOOLS = 'word_count'\n",
        'AGENT FINAL_TOOLS is not a list of names: write it like `FINAL_TOOLS = ["hand_over"]`.',
    ),
}
TYPESCRIPT_HANDLER = "const answer = (_: unknown, response: any) => void response.end()\n"
TYPESCRIPT_MISTAKES = {
    "name": (
        "routes.ts",
        TYPESCRIPT_HANDLER + "export const ROUTES = { 'get /orders': answer }",
        "ROUTES 'get /orders' is not a valid route: write it like 'GET /version'.",
    ),
    "taken": (
        "routes.ts",
        TYPESCRIPT_HANDLER + "export const ROUTES = { 'POST /invocations/': answer }",
        "ROUTES The harness defines the route 'POST /invocations/': choose another path.",
    ),
    "value": (
        "routes.ts",
        "export const ROUTES = { 'GET /orders': 'answer' }",
        "ROUTES The route 'GET /orders' is neither a handler nor a `route(handler)`.",
    ),
    "null": (
        "routes.ts",
        "export const ROUTES = { 'GET /orders': null }",
        "ROUTES The route 'GET /orders' is neither a handler nor a `route(handler)`.",
    ),
    "missing": ("routes.ts", "export const NOTHING = {}", "ROUTES ROUTES is missing: export it."),
    "final": (
        "agent.ts",
        "export const FINAL_TOOLS = ['word_count', 'hand_over']\n",
        "AGENT FINAL_TOOLS names 'hand_over', but no tool has this name.",
    ),
    "tools": ("agent.ts", "TOOLS", "AGENT TOOLS is missing: export it."),
    "prompt": ("agent.ts", "SYSTEM_PROMPT", "AGENT SYSTEM_PROMPT is missing: export it."),
    "no names": (
        "agent.ts",
        "export const FINAL_TOOLS = 'word_count'\n",
        "AGENT FINAL_TOOLS is not an array of names: write it like `['hand_over']`.",
    ),
}
NO_ARRAY = "AGENT TOOLS is not an array: write it like `[wordCount]`."
REMEDY = "write it like `{ word_count: wordCount }`."
NO_OBJECT = f"AGENT TOOLS is not an object: {REMEDY}"
MISTAKES = {
    "strands-python": PYTHON_MISTAKES,
    "vercel-python": PYTHON_MISTAKES,
    "strands-typescript": {
        **TYPESCRIPT_MISTAKES,
        "no array": ("agent.ts", "TOOLS = { wordCount }", NO_ARRAY),
        "no tools": ("agent.ts", "TOOLS = null", NO_ARRAY),
        "function": (
            "agent.ts",
            "TOOLS = [wordCount, () => 1]",
            "AGENT TOOLS[1] is not a tool: use `tool()`.",
        ),
        "nothing": (
            "agent.ts",
            "TOOLS = [undefined]",
            "AGENT TOOLS[0] is not a tool: use `tool()`.",
        ),
    },
    "vercel-typescript": {
        **TYPESCRIPT_MISTAKES,
        "array": ("agent.ts", "TOOLS = [wordCount]", NO_OBJECT),
        "no tools": ("agent.ts", "TOOLS = null", NO_OBJECT),
        "function": (
            "agent.ts",
            "TOOLS = { wordCount, one: () => 1 }",
            "AGENT 'one' in TOOLS is not a tool: use `tool()`.",
        ),
        "one": ("agent.ts", "TOOLS = wordCount", f"AGENT TOOLS is one tool: {REMEDY}"),
    },
}
PYTHON = ["vercel-python", pytest.param("strands-python", marks=pytest.mark.full)]
TYPESCRIPT = ["vercel-typescript", pytest.param("strands-typescript", marks=pytest.mark.full)]


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    project = tmp_path / "project"
    shutil.copytree(rendered(request.param), project)
    link_environment(project, environment(request.param))
    return project


def modules_of(project: Path) -> Path:
    """Return the folder of the owner's modules."""
    folder = project / "src" / "my_agent"
    return folder if folder.exists() else project / "src"


def run(
    project: Path, *words: str, text: str = "", **settings: str
) -> subprocess.CompletedProcess[str]:
    command = [str(NODE), "src/main.ts"]
    variables = {"PORT": "0"}
    if (project / "pyproject.toml").exists():
        command = [str(project / ".venv" / "bin" / "my-agent")]
        variables |= {"PYTHONDONTWRITEBYTECODE": "1"}
    environment = {**clean_environment(), **variables, **settings}
    return forks.run([*command, *words], project, environment, 60, text, is_apart=True)


def each_mistake(target: str) -> list[ParameterSet]:
    """Return a row for each mistake of a target: the target, the file and the message.

    The usual run has every second one, of one target.
    """
    is_usual = target.startswith("vercel")
    return [
        pytest.param(
            target,
            *mistake,
            marks=[] if is_usual and index % 2 else [pytest.mark.full],
            id=f"{target}-{name}",
        )
        for index, (name, mistake) in enumerate(MISTAKES[target].items())
    ]


@pytest.mark.parametrize(
    ("project", "file", "content", "message"),
    [
        *each_mistake("vercel-python"),
        *each_mistake("strands-python"),
        *each_mistake("vercel-typescript"),
        *each_mistake("strands-typescript"),
    ],
    indirect=["project"],
)
def test_a_mistake_in_a_module_is_reported_in_a_sentence(
    project: Path, file: str, content: str, message: str
) -> None:
    path = modules_of(project) / file
    text = path.read_text("utf-8")
    if content in ("TOOLS", "SYSTEM_PROMPT"):
        # Only the start of a line defines the name.
        content = re.sub(f"^(export const )?{content}\\b", r"\1NOTHING", text, flags=re.MULTILINE)
    elif content.startswith("TOOLS"):
        content = re.sub("^(export const )?TOOLS.*", rf"\1{content}", text, flags=re.MULTILINE)
    elif path.stem == "agent":
        content = text + content
    path.write_text(content, "utf-8")
    line = f"{path.relative_to(project).as_posix()}:0 {message}"
    checked = run(project, "check")
    assert line in checked.stdout.splitlines(), checked
    assert (checked.returncode, checked.stderr) == (1, "")
    for command in ("serve", "chat"):
        started = run(project, command, text="Hello.\n")
        assert started.stderr == f"Error: {line}\n"
        assert started.returncode == 1


PYTHON_LATER = '''"""A turn begins another one, whose end takes a while."""

import asyncio
from typing import Any

from .harness import Capability, CoreSettings, Runtime, Turn, TurnRequest


class Later(Capability):
    runtime: Runtime

    async def open(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def committed(self, turn: Turn, messages: list[Any]) -> None:
        if turn.session_id != "later":
            self.runtime.spawn(TurnRequest("later", "Later."))

    async def ended(self, turn: Turn) -> None:
        if turn.session_id == "later":
            await asyncio.sleep(0.5)
            print(f"later: {turn.outcome}")


class OwnSettings(CoreSettings):
    pass


OWN_CAPABILITIES = [Later]
'''

TYPESCRIPT_LATER = """// A turn begins another one, whose end takes a while.

import { setTimeout as sleep } from 'node:timers/promises'

import { Capability, type Runtime, type Turn, TurnRequest } from './harness/index.ts'

class Later extends Capability {
  #runtime: Runtime | undefined

  override async open(runtime: Runtime): Promise<void> {
    this.#runtime = runtime
  }
  override committed(turn: Turn): void {
    if (turn.sessionId === 'later') return
    void this.#runtime?.spawn(new TurnRequest({ sessionId: 'later', prompt: 'Later.' }))
  }
  override async ended({ sessionId, outcome }: Turn): Promise<void> {
    if (sessionId !== 'later') return
    await sleep(500)
    console.log(`later: ${outcome}`)
  }
}

export const OWN_SETTINGS = {}
export const OWN_CAPABILITIES = [Later]
"""


@pytest.mark.parametrize("project", [*PYTHON, *TYPESCRIPT], indirect=True)
def test_chat_awaits_turns_that_were_spawned(project: Path) -> None:
    modules = modules_of(project)
    path = next(modules.glob("own_capabilities.*"))
    path.write_text(PYTHON_LATER if path.suffix == ".py" else TYPESCRIPT_LATER, "utf-8")
    done = run(project, "chat", text="Hello.\n")
    assert done.returncode == 0, done
    assert "later: committed" in done.stdout


NO_TOOL = """from .harness import Capability, CoreSettings


class Added(Capability):
    def tools(self) -> list[object]:
        return [len]


class OwnSettings(CoreSettings):
    pass


OWN_CAPABILITIES = [Added]
"""


@pytest.mark.full
@pytest.mark.parametrize("project", PYTHON, indirect=True)
def test_a_function_of_a_capability_without_its_decorator_is_named(project: Path) -> None:
    """In TypeScript the type checker finds it."""
    (modules_of(project) / "own_capabilities.py").write_text(NO_TOOL, "utf-8")
    done = run(project, "chat", text="Hello.\n")
    assert "(len is not a tool: add @tool)" in done.stdout
    assert "Traceback" not in done.stderr


PYTHON_CLIENT = '''"""A capability with a client."""

from .harness import Capability, CoreSettings, Runtime


class Client(Capability):
    async def open(self, runtime: Runtime) -> None:
        print("opened")

    async def close(self) -> None:
        print("closed")


class OwnSettings(CoreSettings):
    pass


OWN_CAPABILITIES = [Client]
'''

TYPESCRIPT_CLIENT = """// A capability with a client.

import { Capability } from './harness/index.ts'

class Client extends Capability {
  override async open(): Promise<void> {
    console.log('opened')
  }
  override async close(): Promise<void> {
    console.log('closed')
  }
}

export const OWN_SETTINGS = {}
export const OWN_CAPABILITIES = [Client]
"""


@pytest.mark.parametrize("project", [*PYTHON, *TYPESCRIPT], indirect=True)
def test_a_start_that_fails_closes_the_opened_capabilities(project: Path) -> None:
    modules = modules_of(project)
    path = next(modules.glob("own_capabilities.*"))
    path.write_text(PYTHON_CLIENT if path.suffix == ".py" else TYPESCRIPT_CLIENT, "utf-8")
    agent = next(modules.glob("agent.*"))
    export = "" if agent.suffix == ".py" else "export const "
    with agent.open("a", encoding="utf-8") as file:
        file.write(f"\n{export}FINAL_TOOLS = ['hand_over']\n")
    started = run(project, "serve")
    assert started.returncode == 1
    assert "FINAL_TOOLS names 'hand_over'" in started.stderr
    assert started.stdout.splitlines()[-2:] == ["opened", "closed"]


SETTINGS = """from dataclasses import dataclass

from .harness import CoreSettings, integer


@dataclass(frozen=True)
class OwnSettings(CoreSettings):
    workers: int = 3
    offset: int = integer(0, -10, 999_999_999_999)


OWN_CAPABILITIES = []
"""


@pytest.mark.parametrize("project", PYTHON, indirect=True)
def test_own_numbers_are_declared_and_may_be_negative_or_long(project: Path) -> None:
    (project / "src" / "my_agent" / "own_capabilities.py").write_text(SETTINGS, "utf-8")
    checked = run(project, "check", WORKERS="many", OFFSET="-3").stdout
    assert "SET-WORKERS workers is not declared: use integer(10, 0, 100), for example." in checked
    assert "SET-OFFSET" not in checked
    assert "SET-OFFSET" not in run(project, "check", OFFSET="999999999999").stdout
    assert "OFFSET is '-11': use a whole number" in run(project, "check", OFFSET="-11").stdout


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ALLOWED_ORIGINS", "https://u:pa/sswd@shop.example ftp:x"),
        ("ALLOWED_HOSTS", "user:s3cret:sswd@host:80"),
        ("ALLOWED_ORIGINS", "https://shop.example/?api_key=sswd"),
    ],
)
@pytest.mark.parametrize("project", [*PYTHON, *TYPESCRIPT], indirect=True)
def test_check_shows_no_password(project: Path, variable: str, value: str) -> None:
    checked = run(project, "check", **{variable: value}).stdout
    assert f"SET-{variable} " in checked
    assert "sswd" not in checked
    assert "cret" not in checked


@pytest.mark.parametrize("project", PYTHON, indirect=True)
@pytest.mark.parametrize("content", [b"A=\0B\n", "MODEL=a\n".encode("utf-16-le"), b"'A=B'=c\n"])
def test_an_env_file_that_cannot_be_used_is_a_finding(project: Path, content: bytes) -> None:
    (project / ".env").write_bytes(content)
    checked = run(project, "check")
    assert " SET-ENV-" in checked.stdout
    assert checked.stderr == ""
