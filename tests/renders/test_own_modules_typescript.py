"""Wrong modules of an owner in TypeScript, and turns that run while a conversation ends."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.installed import NODE, clean_environment, environment, link_environment, rendered

pytestmark = pytest.mark.slow

HANDLER = "const answer = (_: unknown, response: any) => void response.end()\n"
WRONG = {
    "name": (
        "routes.ts",
        HANDLER + "export const ROUTES = { 'get /orders': answer }",
        "ROUTES 'get /orders' is not a valid route: write it like 'GET /version'.",
    ),
    "taken": (
        "routes.ts",
        HANDLER + "export const ROUTES = { 'GET /ping': answer }",
        "ROUTES The harness defines the route 'GET /ping': choose another path.",
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
}


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    project = tmp_path / "project"
    shutil.copytree(rendered(request.param), project)
    link_environment(project, environment(request.param.partition("+")[0]))
    return project


def run(project: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(NODE), "src/main.ts", *words],
        cwd=project,
        env={**clean_environment(), "PORT": "0"},
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(("file", "content", "message"), WRONG.values(), ids=list(WRONG))
@pytest.mark.parametrize(
    "project",
    ["vercel-typescript", pytest.param("strands-typescript", marks=pytest.mark.full)],
    indirect=True,
)
def test_a_wrong_module_is_reported_in_a_sentence(
    project: Path, file: str, content: str, message: str
) -> None:
    path = project / "src" / file
    text = path.read_text("utf-8")
    if content in ("TOOLS", "SYSTEM_PROMPT"):
        content = text.replace(f"export const {content}", "export const NOTHING")
    elif file == "agent.ts":
        content = text + content
    path.write_text(content, "utf-8")
    line = f"src/{file}:0 {message}"
    checked = run(project, "check")
    assert line in checked.stdout.splitlines(), checked
    assert (checked.returncode, checked.stderr) == (1, "")
    served = run(project, "serve")
    assert served.stderr == f"Error: {line}\n"
    assert served.returncode == 1
    if "AGENT" in message:
        assert run(project, "chat").stderr == f"Error: {line}\n"


LATER = """// A turn begins another one, whose end takes a while.

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


@pytest.mark.parametrize(
    "project",
    ["vercel-typescript", pytest.param("strands-typescript", marks=pytest.mark.full)],
    indirect=True,
)
def test_chat_awaits_turns_that_were_spawned(project: Path) -> None:
    (project / "src" / "own_capabilities.ts").write_text(LATER, "utf-8")
    done = run(project, "chat", text="Hello.\n")
    assert done.returncode == 0, done
    assert "later: committed" in done.stdout
