"""A capability of an owner that fails in every way changes no turn, and nothing is lost."""

import http.client
import json
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from hooks.variants import TARGETS
from tests.installed import NODE, clean_environment, environment, link_environment, rendered

pytestmark = pytest.mark.slow

PYTHON = """
class Failing(Capability):
    @asynccontextmanager
    async def around(self, turn: Turn) -> AsyncIterator[None]:
        yield
        raise RuntimeError(" ".join(["a", "secret"]))

    def committed(self, turn: Turn, messages: list[Any]) -> None:
        raise AgentError("internal_error", " ".join(["a", "secret"]))

    async def close(self) -> None:
        raise RuntimeError(" ".join(["a", "secret"]))


class Hanging(Capability):
    async def close(self) -> None:
        await asyncio.Event().wait()


class Refusing(Capability):
    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        if turn.prompt == "no":
            raise AgentError("session_forbidden", "Not this prompt.")


class Last(Capability):
    async def open(self) -> None:
        print("opened", flush=True)

    async def close(self) -> None:
        print("closed", flush=True)


OWN_CAPABILITIES: list[type[Capability]] = [Last, Hanging, Failing, Refusing]
"""
IMPORTS = """
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from .contract import AgentError, Turn
"""
TYPESCRIPT = """
import { Capability } from './capability.ts'
import { AgentError, type Turn } from './contract.ts'

class Failing extends Capability {
  override async around<T>(_turn: Turn, run: () => Promise<T>): Promise<T> {
    await run()
    throw new Error(['a', 'secret'].join(' '))
  }
  override committed(): void {
    throw new AgentError('internal_error', 'a secret')
  }
  override async close(): Promise<void> {
    throw new Error(['a', 'secret'].join(' '))
  }
}

class Hanging extends Capability {
  override close(): Promise<void> {
    return new Promise(() => undefined)
  }
}

class Refusing extends Capability {
  override prepare({ prompt }: Turn): void {
    if (prompt === 'no') throw new AgentError('session_forbidden', 'Not this prompt.')
  }
}

class Last extends Capability {
  override async open(): Promise<void> {
    console.log('opened')
  }
  override async close(): Promise<void> {
    console.log('closed')
  }
}

export const OWN_SETTINGS = {}
export const OWN_CAPABILITIES = [Last, Hanging, Failing, Refusing]
"""


@pytest.fixture(params=TARGETS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    project = tmp_path / "my-agent"
    shutil.copytree(rendered(request.param), project)
    link_environment(project, environment(request.param))
    own = next(project.glob("src/**/own_capabilities.*"))
    if own.suffix == ".ts":
        own.write_text(f"// Mine.\n{TYPESCRIPT}")
    else:
        text = re.sub(r"^OWN_CAPABILITIES.*\n", "", own.read_text(), flags=re.MULTILINE)
        own.write_text(text.replace("\nfrom dataclasses", f"{IMPORTS}\nfrom dataclasses") + PYTHON)
    return project


def test_no_failure_of_it_changes_a_turn_or_the_end_of_the_process(project: Path) -> None:
    is_node = (project / "package.json").exists()
    command = [str(project / ".venv" / "bin" / "my-agent"), "serve"]
    if is_node:
        command = [str(NODE), str(project / "src" / "main.ts"), "serve"]
    server = subprocess.Popen(
        command,
        cwd=project,
        env={**clean_environment(), "PORT": "0", "SHUTDOWN_GRACE_SECONDS": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout
        found = (re.search(r"Listening on http://127.0.0.1:(\d+)", line) for line in server.stdout)
        port = int(next(match[1] for match in found if match))
        assert say(port, "Hello.") == (200, 1)
        assert say(port, "no") == (403, "session_forbidden")
        assert say(port, "Hello.") == (200, 2)
        assert say(port, "Hello.", actor="ada") == (403, "session_forbidden")
        server.send_signal(signal.SIGTERM)
        log = server.communicate(timeout=30)[0]
    finally:
        server.kill()
    assert server.returncode == 0
    assert "closed" in log, "the others are closed, too"
    assert log.count("ERROR") == 6, "two turns, each in two places, and two at the end"
    assert "Timeout" in log
    assert "a secret" not in log


def say(port: int, prompt: str, actor: str = "") -> tuple[int, object]:
    prefix = "X-Amzn-Bedrock-AgentCore-Runtime-"
    headers = {"Accept": "application/json", f"{prefix}Session-Id": "s"}
    headers |= {f"{prefix}User-Id": actor} if actor else {}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", "/invocations", json.dumps({"prompt": prompt}), headers)
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    return answer.status, body["turn"] if answer.status == 200 else body["error"]["type"]
