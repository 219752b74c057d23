"""A capability of an owner that fails in every way changes no turn, and nothing is lost."""

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hooks.variants import TARGETS
from tests.installed import (
    NODE,
    clean_environment,
    environment,
    link_environment,
    rendered,
)
from tests.stores import forks

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
    async def open(self, runtime: Runtime) -> None:
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
from .harness import AgentError, Runtime, Turn
"""
TYPESCRIPT = """
import { AgentError, Capability, type Turn } from './harness/index.ts'

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
# What each does depends on the prompt and the path, or for the whole process on HOSTILE.
HOSTILE_TYPESCRIPT = """
import { setTimeout as sleep } from 'node:timers/promises'

import { AgentError, Capability, string } from './harness/index.ts'

const never = () => new Promise(() => undefined)
const secret = () => new Error(['a', 'secret'].join(' '))

class First extends Capability {
  async open() {
    console.log('first opened')
  }
  async close() {
    console.log('first closed')
  }
  routes() {
    return { 'GET /who': (_, response) => response.end('first') }
  }
}

class Hostile extends Capability {
  async around(turn, run) {
    console.log(turn, JSON.stringify(turn))
    if (turn.prompt === 'hang') await never()
    if (turn.prompt === 'hang in it') {
      run()
      await never()
    }
    if (turn.prompt === 'hang after it') {
      await run()
      await never()
    }
    if (turn.prompt === 'forget') return void (await run())
    if (turn.prompt === 'other') {
      await run()
      return { turn: 99, reply: 'not said' }
    }
    if (turn.prompt === 'twice') {
      await run()
      return run()
    }
    if (turn.prompt === 'swallow') return run().catch(() => ({ turn: 99, reply: 'not said' }))
    if (turn.prompt === 'another') {
      await run().catch(() => undefined)
      throw secret()
    }
    if (turn.prompt === 'skip') return { turn: 99, reply: 'not said' }
    if (turn.prompt === 'late') return void setTimeout(run, 200)
    if (turn.prompt === 'throw') throw secret()
    return run()
  }
  prepare({ prompt }, options) {
    if (prompt === 'limit') throw new AgentError('rate_limited')
    if (['swallow', 'another'].includes(prompt)) throw new AgentError('model_failed')
    if (prompt === 'reject') return Promise.reject(secret())
    return Object.keys(options).push('truthy')
  }
  wrap(app) {
    return (request, response) => {
      if (request.url === '/sync') throw new AgentError('unauthorized')
      if (request.url === '/async') return sleep(1).then(() => Promise.reject(secret()))
      return app(request, response)
    }
  }
  routes() {
    return { 'GET /who': (_, response) => response.end('second') }
  }
}

class Hanging extends Capability {
  close = never
}

class Flushing extends Capability {
  async close() {
    await sleep(1000)
    console.log('flushed')
  }
}

const change = {
  prepare: () => Object.assign(Hostile.prototype, { async prepare() {} }),
  committed: () => Object.assign(Hostile.prototype, { async committed() {} }),
  route: () => (Hostile.prototype.routes = () => ({ 'GET/who': () => undefined })),
  lower: () => (Hostile.prototype.routes = () => ({ 'get /who': () => undefined })),
  describe: () => (Hostile.prototype.describe = () => never.missing()),
  check: () => (Hostile.prototype.check = () => never.missing()),
  ping: () => (Hostile.prototype.ping = () => Promise.reject(secret())),
  hang: () => (Hostile.prototype.ping = () => (setInterval(never, 1000), never())),
}
change[process.env.HOSTILE]?.()
const isServed = process.argv.includes('serve') && !process.env.HOSTILE
const hanging = isServed ? [Hanging, Hanging, Flushing, Hanging] : []

const address = string('https://.*', 'an https address')
export const OWN_SETTINGS = { token: address, ordersApikey: address, ordersUrl: address }
export const OWN_CAPABILITIES = [First, Hostile, ...hanging]
"""

HOSTILE_PYTHON = """
import asyncio
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.responses import Response

from .harness import AgentError, Capability, CoreSettings, string


async def never():
    await asyncio.Event().wait()


def fail():
    raise ValueError(" ".join(["a", "secret"]))


class First(Capability):
    async def open(self, runtime):
        print("first opened", flush=True)

    async def close(self):
        print("first closed", flush=True)

    def routes(self):
        return {"GET /who": self.respond}

    async def respond(self, request, runtime):
        return Response("first")


class Hostile(Capability):
    @asynccontextmanager
    async def around(self, turn):
        print(turn, flush=True)
        if turn.prompt == "hang":
            await never()
        if turn.prompt == "throw":
            fail()
        if turn.prompt == "skip":
            return
        try:
            yield
        except AgentError:
            if turn.prompt == "another":
                fail()
            if turn.prompt != "swallow":
                raise
        if turn.prompt == "hang after it":
            await never()
        if turn.prompt == "sys.exit":
            sys.exit(3)
        if turn.prompt == "fail":
            fail()
        if turn.prompt == "twice":
            yield

    def prepare(self, turn, options):
        if turn.prompt == "limit":
            raise AgentError("rate_limited")
        if turn.prompt in {"swallow", "another"}:
            raise AgentError("model_failed")
        if turn.prompt == "late":
            raise TimeoutError

    def committed(self, turn, messages):
        if turn.prompt == "sys.exit":
            sys.exit(3)

    def wrap(self, app):
        async def respond(scope, receive, send):
            if scope.get("path") == "/sync":
                raise AgentError("unauthorized")
            if scope.get("path") == "/async":
                fail()
            await app(scope, receive, send)

        return respond

    def routes(self):
        return {"GET /who": self.respond}

    async def respond(self, request, runtime):
        return Response("second")


class Hanging(Capability):
    async def close(self):
        await never()


class Flushing(Capability):
    async def close(self):
        await asyncio.sleep(1)
        print("flushed", flush=True)


async def nothing(*_):
    pass


def broken(*_):
    raise TypeError


async def hang(_):
    await never()


async def ping(_):
    fail()


CHANGES = {
    "prepare": ("prepare", nothing),
    "committed": ("committed", nothing),
    "route": ("routes", lambda _: {"GET/who": nothing}),
    "lower": ("routes", lambda _: {"get /who": nothing}),
    "describe": ("describe", broken),
    "check": ("check", broken),
    "ping": ("ping", ping),
    "hang": ("ping", hang),
}
if change := CHANGES.get(os.environ.get("HOSTILE", "")):
    nothing.__qualname__ = f"Hostile.{change[0]}"
    setattr(Hostile, *change)
is_served = "serve" in sys.argv and "HOSTILE" not in os.environ


@dataclass(frozen=True)
class OwnSettings(CoreSettings):
    token: str = string("https://.*", "an https address")
    orders_apikey: str = string("https://.*", "an https address")
    orders_url: str = string("https://.*", "an https address")


OWN_CAPABILITIES = [First, Hostile, *[Hanging, Hanging, Flushing, Hanging] * is_served]
"""
# How each prompt ends, in this order in one session.
OUTCOMES: dict[str, dict[str, tuple[int, object]]] = {
    "python": {
        "fail": (200, 1),
        "sys.exit": (200, 2),
        "twice": (200, 3),
        "swallow": (502, "model_failed"),
        "another": (502, "model_failed"),
        "skip": (500, "internal_error"),
        "late": (500, "internal_error"),
        "throw": (500, "internal_error"),
        "Hello.": (200, 4),
    },
    "typescript": {
        "forget": (200, 1),
        "other": (200, 2),
        "twice": (200, 3),
        "swallow": (502, "model_failed"),
        "another": (502, "model_failed"),
        "skip": (500, "internal_error"),
        "late": (500, "internal_error"),
        "throw": (500, "internal_error"),
        "reject": (200, 4),  # after `late`, whose late `run` commits nothing
    },
}
# What takes the place of a turn until its client leaves.
HANGS = {
    "python": ["hang", "hang after it"],
    "typescript": ["hang", "hang in it", "hang after it"],
}


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
    server = start(project, "serve")
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


# What runs a capability is shared by the targets of a language.
SHARED = ("strands-python", "vercel-typescript")


@pytest.fixture(
    scope="module",
    params=[pytest.param(it, marks=[] if it in SHARED else pytest.mark.full) for it in TARGETS],
)
def hostile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp(request.param) / "my-agent"
    shutil.copytree(rendered(request.param), project)
    link_environment(project, environment(request.param))
    own = next(project.glob("src/**/own_capabilities.*"))
    own.write_text(HOSTILE_TYPESCRIPT if own.suffix == ".ts" else HOSTILE_PYTHON)
    return project


def language_of(project: Path) -> str:
    return "typescript" if (project / "package.json").exists() else "python"


def program_of(project: Path) -> list[str]:
    python = [str(project / ".venv" / "bin" / "my-agent")]
    return [str(NODE), "src/main.ts"] if language_of(project) == "typescript" else python


def settings_of() -> dict[str, str]:
    return {**clean_environment(), "PORT": "0", "SHUTDOWN_GRACE_SECONDS": "0"}


def start(project: Path, *command: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*program_of(project), *command],
        cwd=project,
        env={**settings_of(), **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(project: Path, *command: str, typed: str = "", **variables: str) -> tuple[int, str]:
    settings = {**settings_of(), **variables}
    done = forks.run([*program_of(project), *command], project, settings, 30, typed)
    return done.returncode, done.stdout


def status_of(port: int, method: str, path: str, prompt: str = "") -> tuple[int, str, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps({"prompt": prompt}) if prompt else None
    connection.request(method, path, body, {"Accept": "application/json"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, answer.headers["Retry-After"]


def leave(port: int, prompt: str) -> None:
    """Send a prompt, and leave while its turn runs."""
    request = json.dumps({"prompt": prompt})
    head = f"POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(request)}"
    head += f"\r\nX-Amzn-Bedrock-AgentCore-Runtime-Session-Id: {prompt.replace(' ', '-')}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"{head}{request}".encode())
        wait_for_ping(port, "HealthyBusy")
        time.sleep(0.2)
    wait_for_ping(port, "Healthy")


def wait_for_ping(port: int, status: str) -> None:
    end = time.monotonic() + 10
    while json.loads(status_of(port, "GET", "/ping")[1])["status"] != status:
        assert time.monotonic() < end, status
        time.sleep(0.02)


def test_no_hostile_capability_changes_the_outcome_of_a_turn(hostile: Path) -> None:
    server = start(hostile, "serve")
    waiting = ThreadPoolExecutor(1)
    try:
        assert server.stdout
        found = (re.search(r"Listening on http://127.0.0.1:(\d+)", line) for line in server.stdout)
        port = int(next(match[1] for match in found if match))
        outcomes, hangs = OUTCOMES[language_of(hostile)], HANGS[language_of(hostile)]
        for prompt, outcome in outcomes.items():
            assert say(port, prompt) == outcome, prompt
            if prompt == "late":
                time.sleep(0.3)
        assert status_of(port, "POST", "/invocations", "limit")[::2] == (429, "1")
        for prompt in hangs:
            leave(port, prompt)
        status, error, _ = status_of(port, "GET", "/sync")
        assert (status, json.loads(error)["error"]["type"]) == (401, "unauthorized")
        assert status_of(port, "GET", "/async")[0] == 500
        assert status_of(port, "GET", "/who")[1] == "first"
        hanging = waiting.submit(say, port, "hang")
        wait_for_ping(port, "HealthyBusy")
        server.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert hanging.result(timeout=10) == (503, "draining")
        log = server.communicate(timeout=30)[0]
    finally:
        server.kill()
        waiting.shutdown()
    assert server.returncode == 0, log
    assert time.monotonic() - began < 10, "those that hang do so at once"
    late = "TimeoutError < CancelledError" if language_of(hostile) == "python" else "TimeoutError"
    assert log.index("flushed") < log.index(f"ERROR {late}")
    assert "first closed" in log
    assert log.count(f"ERROR {late}") == 3
    assert log.count("outcome=committed") == 4 + len(hangs) - 1, "all but one were kept"
    assert log.count("outcome=internal_error") == 3
    if language_of(hostile) == "typescript":
        assert log.count("detail=Hostile.around did not call run") == 2
    assert log.count("outcome=cancelled") == 1, "one was left"
    assert log.count("outcome=draining") == 1, "one was cut by the end of the process"
    for text in ("a secret", "swallow", "application/json", "not said", "uncaught"):
        assert text not in log


def test_chat_survives_a_hostile_capability(hostile: Path) -> None:
    prompts = [*OUTCOMES[language_of(hostile)], "Hello."]
    code, output = run(hostile, "chat", typed="\n".join([*prompts, ""]))
    assert code == 1
    assert "not said" not in output
    assert 'Now you said: "Hello."' in output
    chat = start(hostile, "chat")
    try:
        assert chat.stdin
        assert chat.stdout
        chat.stdin.write("hang\n")
        chat.stdin.flush()
        while "hang" not in chat.stdout.readline():
            pass
        time.sleep(0.3)
        chat.send_signal(signal.SIGINT)
        assert chat.wait(timeout=10) == 0
    finally:
        chat.kill()


@pytest.mark.parametrize(
    ("hostile_in", "line"),
    [
        ("prepare", "Error: Hostile.prepare must not be async: "),
        ("committed", "Error: Hostile.committed must not be async: "),
        ("route", "Error: 'GET/who' is not a valid route: write it like 'GET /version'.\n"),
        ("lower", "Error: 'get /who' is not a valid route: write it like 'GET /version'.\n"),
        ("describe", "TypeError"),
        ("check", "Error: Hostile.check failed: TypeError.\n"),
        ("port", "Error: Cannot listen on HOST 127.0.0.1, PORT "),
    ],
)
def test_a_failed_start_gives_its_reason_and_closes_its_clients(
    hostile: Path, hostile_in: str, line: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1]) if hostile_in == "port" else "0"
        code, output = run(hostile, "serve", HOSTILE=hostile_in, PORT=port)
    assert code == 1
    assert line in output
    assert output.count("first opened") == output.count("first closed")
    if hostile_in == "describe":
        assert "first closed" in output


@pytest.mark.parametrize(
    ("hostile_in", "message"),
    [
        ("check", "Hostile.check failed: TypeError."),
        ("ping", "Hostile.ping failed: (Value)?Error."),
        ("hang", "Hostile.ping failed: TimeoutError( < CancelledError)?."),
    ],
)
def test_a_check_that_fails_is_a_finding(hostile: Path, hostile_in: str, message: str) -> None:
    command = ("check", "--json", "--connect")
    code, output = run(hostile, *command, HOSTILE=hostile_in, TURN_TIMEOUT_SECONDS="1")
    assert code == 1, output
    (finding,) = json.loads(output)["diagnostics"]
    assert (finding["id"], finding["severity"]) == ("CAPABILITY", "error")
    assert re.fullmatch(message, finding["message"])


def test_no_secret_of_a_setting_is_shown(hostile: Path) -> None:
    secrets = {"TOKEN": "a-secret", "ORDERS_APIKEY": "a-secret"}
    code, output = run(hostile, "check", **secrets, ORDERS_URL="http://me:a-secret@orders.example")
    assert code == 1
    assert "a-secret" not in output
    assert "SET-TOKEN TOKEN is invalid" in output
    assert "ORDERS_URL is 'http://orders.example': use an https address." in output
