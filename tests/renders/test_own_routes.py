"""Routes of an owner that fail in every way: their own request ends, and nothing else."""

import http.client
import json
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest

from hooks.variants import TARGETS
from tests.installed import NODE, clean_environment, environment, link_environment, rendered

pytestmark = pytest.mark.slow

PYTHON = """
import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from .harness import Runtime


async def cut(request: Request, runtime: Runtime) -> Response:
    async def text() -> AsyncIterator[str]:
        yield "first"
        await asyncio.sleep(0.1)
        raise RuntimeError(" ".join(["after", "the first byte"]))
    return StreamingResponse(text())


async def at_once(request: Request, runtime: Runtime) -> Response:
    raise RuntimeError("before the first byte")


async def later(request: Request, runtime: Runtime) -> Response:
    def fail() -> None:
        raise RuntimeError(" ".join(["nobody", "waits for this"]))

    async def rejected() -> None:
        fail()

    loop = asyncio.get_running_loop()
    loop.call_later(0.01, fail)
    loop.create_task(rejected())
    threading.Thread(target=fail).start()
    threading.Thread(target=open, args=("/nowhere",)).start()
    threading.Thread(target=sys.exit).start()  # which is no failure
    return PlainTextResponse("well")


ROUTES: dict[str, Handler] = {"GET /cut": cut, "GET /at-once": at_once, "GET /later": later}
"""
TYPESCRIPT = """
import { EventEmitter } from 'node:events'

function fail(): never {
  throw new Error('nobody waits for this')
}

export const ROUTES: Record<string, Handler> = {
  'GET /cut': async (_request, response) => {
    response.write('first')
    await new Promise((resolve) => setTimeout(resolve, 100))
    throw new Error(["after", "the first byte"].join(" "))
  },
  'GET /at-once': () => fail(),
  'GET /later': (_request, response) => {
    setTimeout(fail, 10)
    setTimeout(() => {
      const error = new Error('its own cause')
      error.cause = error
      throw error
    }, 10)
    void Promise.reject(new Error('nobody waits for this'))
    setImmediate(() => {
      throw Object.assign(new Error('nobody waits for this'), { stack: null })
    })
    setImmediate(() => new EventEmitter().on('now', fail).emit('now'))
    setImmediate(() => new EventEmitter().emit('error', new Error('nobody listens')))
    response.once('close', fail)
    response.end('well')
    response.write('after the end')
  },
}
"""
FIRST = {"strands-python", "vercel-typescript"}  # both targets of a language share the server
ROWS = [pytest.param(name, marks=[] if name in FIRST else [pytest.mark.full]) for name in TARGETS]


@pytest.fixture(scope="module", params=ROWS)
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where an agent listens that has these routes."""
    project = tmp_path_factory.mktemp(request.param) / "my-agent"
    shutil.copytree(rendered(request.param), project)
    link_environment(project, environment(request.param))
    is_python = (project / "src" / "my_agent").exists()
    routes = project / "src" / ("my_agent/routes.py" if is_python else "routes.ts")
    text, _, _ = routes.read_text().partition("# By method" if is_python else "// By method")
    routes.write_text(text + (PYTHON if is_python else TYPESCRIPT))
    python = [str(project / ".venv" / "bin" / "my-agent"), "serve"]
    server = subprocess.Popen(
        python if is_python else [str(NODE), "src/main.ts", "serve"],
        cwd=project,
        env={**clean_environment(), "PORT": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert server.stdout
    for line in server.stdout:
        if "Listening on" in line:
            yield int(line.rpartition(":")[2])
            break
    server.terminate()
    log = server.stdout.read()
    assert server.wait(timeout=20) == 0, log
    if "session-later" in log:  # what nobody waits for is logged: its kind and its place
        kinds = ["RuntimeError", "FileNotFoundError"] if is_python else ["ERROR Error"]
        assert all(kind in log for kind in [*kinds, routes.name]), log
    assert log.count("SystemExit") == log.count("ERROR SystemExit"), "its kind and its place"
    for text in ("after the first byte", "nobody waits for this"):
        assert text not in log  # it could quote a prompt


def ask(port: int, path: str, session: str = "") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {"X-Amzn-Bedrock-AgentCore-Runtime-Session-Id": session} if session else {}
    body = json.dumps({"prompt": "Hello."}) if session else None
    headers |= {"Accept": "application/json"}
    connection.request("POST" if session else "GET", path, body, headers)
    answer = connection.getresponse()
    try:
        return answer.status, answer.read()
    except http.client.IncompleteRead as cut:
        return answer.status, cut.partial + b" and no end"
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/cut", (200, b"first and no end")),
        ("/at-once", (500, b"Internal error.")),
        ("/later", (200, b"well")),
    ],
)
def test_a_route_that_fails_ends_its_request_only(
    port: int, path: str, expected: tuple[int, bytes]
) -> None:
    session = f"session-{path[1:]}"
    assert json.loads(ask(port, "/invocations", session)[1])["turn"] == 1
    status, text = ask(port, path)
    assert (status, expected[1] in text) == (expected[0], True), text
    time.sleep(0.2)  # what fails later has failed by then
    assert json.loads(ask(port, "/invocations", session)[1])["turn"] == 2
