"""Wrong modules of an owner in Python, and turns that run while a conversation ends."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.installed import clean_environment, environment, link_environment, rendered

pytestmark = pytest.mark.slow

HANDLER = "async def answer(request, runtime): ...\n\n\n"
WRONG = {
    "name": (
        "routes.py",
        HANDLER + "ROUTES = {'get /orders': answer}",
        "ROUTES 'get /orders' is not a valid route: write it like 'GET /version'.",
    ),
    "taken": (
        "routes.py",
        HANDLER + "ROUTES = {'GET /ping': answer}",
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
        HANDLER + "ROUTES = {'GET /{a}/{a}': answer}",
        "ROUTES 'GET /{a}/{a}' is not a valid route: Duplicated param name a at path /{a}/{a}",
    ),
    "final": (
        "agent.py",
        "\nFINAL_TOOLS = ['word_count', 'hand_over']\n",
        "AGENT FINAL_TOOLS names 'hand_over', but no tool has this name.",
    ),
    "tools": ("agent.py", "TOOLS", "AGENT TOOLS is missing: define it."),
    "prompt": ("agent.py", "SYSTEM_PROMPT", "AGENT SYSTEM_PROMPT is missing: define it."),
}
PROJECTS = ["vercel-python", pytest.param("strands-python", marks=pytest.mark.full)]


@pytest.fixture(params=PROJECTS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    project = tmp_path / "project"
    shutil.copytree(rendered(request.param), project)
    link_environment(project, environment(request.param))
    return project


def run(
    project: Path, *words: str, text: str = "", **settings: str
) -> subprocess.CompletedProcess[str]:
    code = "from my_agent.main import cli; cli()"
    variables = {"PORT": "0", "PYTHONPATH": str(project / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [str(project / ".venv" / "bin" / "python"), "-c", code, *words],
        cwd=project,
        env={**clean_environment(), **variables, **settings},
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(("file", "content", "message"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_module_is_reported_in_a_sentence(
    project: Path, file: str, content: str, message: str
) -> None:
    path = project / "src" / "my_agent" / file
    text = path.read_text("utf-8")
    if content in ("TOOLS", "SYSTEM_PROMPT"):
        content = text.replace(f"\n{content}", f"\nMY_{content}")
    elif file == "agent.py":
        content = text + content
    path.write_text(content, "utf-8")
    line = f"src/my_agent/{file}:0 {message}"
    checked = run(project, "check")
    assert line in checked.stdout.splitlines(), checked
    assert (checked.returncode, checked.stderr) == (1, "")
    served = run(project, "serve")
    assert served.stderr == f"Error: {line}\n"
    assert served.returncode == 1
    if "AGENT" in message:
        assert run(project, "chat", text="Hello.\n").stderr == f"Error: {line}\n"


LATER = '''"""A turn begins another one, whose end takes a while."""

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


def test_chat_awaits_turns_that_were_spawned(project: Path) -> None:
    (project / "src" / "my_agent" / "own_capabilities.py").write_text(LATER, "utf-8")
    done = run(project, "chat", text="Hello.\n")
    assert done.returncode == 0, done
    assert "later: committed" in done.stdout


SETTINGS = """from dataclasses import dataclass

from .harness import CoreSettings, integer


@dataclass(frozen=True)
class OwnSettings(CoreSettings):
    workers: int = 3
    offset: int = integer(0, -10, 999_999_999_999)


OWN_CAPABILITIES = []
"""


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
def test_check_shows_no_password(project: Path, variable: str, value: str) -> None:
    checked = run(project, "check", **{variable: value}).stdout
    assert f"SET-{variable} " in checked
    assert "sswd" not in checked
    assert "cret" not in checked


@pytest.mark.parametrize("content", [b"A=\0B\n", "MODEL=a\n".encode("utf-16-le"), b"'A=B'=c\n"])
def test_an_env_file_that_cannot_be_used_is_a_finding(project: Path, content: bytes) -> None:
    (project / ".env").write_bytes(content)
    checked = run(project, "check")
    assert " SET-ENV-" in checked.stdout
    assert checked.stderr == ""
