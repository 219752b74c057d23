"""Routes of an owner in TypeScript: actor, token, types and body limit; sessions of an actor."""

import http.client
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.installed import NODE, clean_environment, environment, link_environment, rendered

pytestmark = pytest.mark.slow

ROUTES = """// Routes of a shop.

import { type Handler, route, type Routes } from './harness/index.ts'

const who: Handler = async (_request, response, _runtime, { actor, body }) => {
  response.end(JSON.stringify({ actor, bytes: (await body()).length }))
}

const list: Handler = async (_request, response, { sessions }, { actor }) => {
  const turns: Record<string, unknown> = {}
  const known = await sessions.list(actor)
  for (const { sessionId } of known) turns[sessionId] = await sessions.turns(sessionId, actor)
  response.end(JSON.stringify({ sessions: known, turns }))
}

const turns: Handler = async ({ url = '' }, response, { sessions }, { actor }) => {
  response.end(JSON.stringify(await sessions.turns(url.split('/')[2] ?? '', actor)))
}

const end: Handler = async ({ url = '' }, response, { sessions }, { actor }) => {
  await sessions.end(url.split('/')[2] ?? '', actor)
  response.writeHead(204).end()
}

const note: Handler = async (_request, response, _runtime, { params, json }) => {
  response.end(JSON.stringify({ name: params.name, note: await json() }))
}

const twice: Handler = async (_request, response, _runtime, { body }) => {
  const sizes = [(await body()).length, (await body()).length]
  response.end(JSON.stringify(sizes))
}

const fail: Handler = () => {
  throw new Error('secret')
}

const types = ['multipart/form-data', 'text/csv']

export const ROUTES: Routes = {
  'POST /who': who,
  'POST /hook': route(who, { public: true }),
  'POST /upload': route(who, { types, maxBytes: 5_000 }),
  'GET /export': list,
  'GET /turns/{id}': turns,
  'POST /notes/{name}': note,
  'DELETE /sessions/{id}': end,
  'POST /twice': twice,
  'GET /things/{id}': fail,
  'PUT /things/{id}': who,
}
"""
OWN_CAPABILITIES = """// A capability with a route.

import { Capability, type Handler, type Routes } from './harness/index.ts'

const me: Handler = (_request, response, _runtime, { actor }) => {
  response.end(JSON.stringify({ actor }))
}

class Me extends Capability {
  override routes(): Routes {
    return { 'GET /me': me }
  }
  override publicRoutes(): Routes {
    return { 'GET /nobody': me }
  }
}

export const OWN_SETTINGS = {}
export const OWN_CAPABILITIES = [Me]
"""
PREFIX = "X-Amzn-Bedrock-AgentCore-Runtime-"
ACTOR, SESSION = PREFIX + "User-Id", PREFIX + "Session-Id"
PAGE = "https://shop.example"
TOKEN = {"Authorization": "Bearer of-the-shop"}
Answer = tuple[int, Any]
ROWS = ["vercel-typescript", pytest.param("strands-typescript", marks=pytest.mark.full)]


@pytest.fixture(scope="module", params=ROWS)
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    project = tmp_path_factory.mktemp(request.param) / "my-agent"
    shutil.copytree(rendered(request.param), project)
    link_environment(project, environment(request.param))
    (project / "src" / "routes.ts").write_text(ROUTES, "utf-8")
    (project / "src" / "own_capabilities.ts").write_text(OWN_CAPABILITIES, "utf-8")
    node = [str(NODE), "node_modules/typescript/bin/tsc"]
    typed = subprocess.run(node, cwd=project, capture_output=True, text=True)
    assert typed.returncode == 0, typed.stdout
    settings = {"API_TOKEN": "of-the-shop", "ALLOWED_ORIGINS": PAGE, "MAX_BODY_BYTES": "1000"}
    server = subprocess.Popen(
        [str(NODE), "src/main.ts", "serve"],
        cwd=project,
        env={**clean_environment(), **settings, "PORT": "0"},
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


def ask(
    port: int, route: str, headers: Mapping[str, str] = TOKEN, body: bytes | None = None
) -> Answer:
    """Send a request, and return the status and the JSON of the answer."""
    method, path = route.split()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content else None
    finally:
        connection.close()


def say(port: int, actor: str, session: str, **body: object) -> Answer:
    headers = {**TOKEN, ACTOR: actor, SESSION: session, "Accept": "application/json"}
    return ask(port, "POST /invocations", headers, json.dumps(body).encode())


def test_a_handler_gets_the_checked_actor(port: int) -> None:
    assert ask(port, "POST /who", TOKEN, b"{}") == (200, {"actor": None, "bytes": 2})
    known = (200, {"actor": "ada", "bytes": 0})
    assert ask(port, "POST /who", {**TOKEN, ACTOR: "ada"}) == known
    status, answer = ask(port, "POST /who", {**TOKEN, ACTOR: "ada lovelace"})
    assert (status, answer["error"]["type"]) == (400, "invalid_actor")
    status, answer = ask(port, "POST /who", {})
    assert (status, answer["error"]["type"]) == (401, "unauthorized")


def test_a_handler_of_a_capability_gets_the_checked_actor_too(port: int) -> None:
    assert ask(port, "GET /me", {**TOKEN, ACTOR: "ada"}) == (200, {"actor": "ada"})
    status, answer = ask(port, "GET /me", {**TOKEN, ACTOR: "ada lovelace"})
    assert (status, answer["error"]["type"]) == (400, "invalid_actor")
    assert ask(port, "GET /nobody", {ACTOR: "ada"}) == (200, {"actor": None})


def test_a_handler_gets_the_segments_of_its_path_and_json(port: int) -> None:
    answer = (200, {"name": "roof cellar", "note": ["first"]})
    assert ask(port, "POST /notes/roof%20cellar", TOKEN, b'["first"]') == answer
    status, error = ask(port, "POST /notes/roof", TOKEN, b'["first"')
    assert (status, error["error"]["type"]) == (400, "invalid_json")
    status, error = ask(port, "POST /notes/roof", TOKEN, b"[" * 65 + b"]" * 65)
    assert (status, error["error"]["type"]) == (400, "invalid_json")
    status, error = ask(port, "POST /notes/roof", TOKEN, b" " * 1_001)
    assert (status, error["error"]["type"]) == (413, "payload_too_large")


def test_a_public_route_needs_no_token_and_trusts_no_actor(port: int) -> None:
    answer = (200, {"actor": None, "bytes": 4})
    assert ask(port, "POST /hook", {ACTOR: "ada"}, b"ping") == answer


@pytest.mark.parametrize(
    ("route", "size", "status"),
    [
        ("POST /who", 1_000, 200),
        ("POST /who", 1_001, 413),
        ("POST /who", 3_000_000, 413),
        ("POST /upload", 5_000, 200),
        ("POST /upload", 5_001, 413),
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
def test_the_body_of_a_route_is_bounded(
    port: int, route: str, size: int, status: int, chunked: bool
) -> None:
    headers = TOKEN
    body = b"x" * size
    if chunked:
        headers = {**TOKEN, "Transfer-Encoding": "chunked"}
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (size, body)
    found, answer = ask(port, route, headers, body)
    assert found == status
    if status == 413:
        assert answer["error"]["type"] == "payload_too_large"
    else:
        assert answer["bytes"] == size


@pytest.mark.parametrize(
    ("origin", "route", "kind", "status"),
    [
        (PAGE, "POST /upload", 'multipart/form-data; boundary="a"', 200),
        (PAGE, "POST /upload", "text/csv", 200),
        (PAGE, "POST /upload", "application/json", 400),
        (PAGE, "POST /upload", "", 400),
        (PAGE, "POST /who", "application/json", 200),
        (PAGE, "POST /who", "multipart/form-data", 400),
        ("https://other.example", "POST /upload", "text/csv", 403),
    ],
)
def test_a_page_sends_the_types_of_a_route(
    port: int, origin: str, route: str, kind: str, status: int
) -> None:
    headers = {**TOKEN, "Origin": origin, **({"Content-Type": kind} if kind else {})}
    assert ask(port, route, headers, b"a,b")[0] == status


def test_sessions_of_an_actor_are_listed_with_forks_and_turns_and_ended(port: int) -> None:
    replies = [say(port, "bea", "first", prompt=text)[1]["reply"] for text in ("One.", "Two.")]
    assert say(port, "bea", "first", fork="copy", at_turn=1)[0] == 200
    assert say(port, "eve", "other", prompt="Mine.")[0] == 200
    bea = {**TOKEN, ACTOR: "bea"}
    status, answer = ask(port, "GET /export", bea)
    assert status == 200
    assert {it["sessionId"]: it["turns"] for it in answer["sessions"]} == {"first": 2, "copy": 1}
    assert all(it["savedAt"] for it in answer["sessions"])
    first = {"number": 1, "prompt": "One.", "reply": replies[0]}
    second = {"number": 2, "prompt": "Two.", "reply": replies[1]}
    assert answer["turns"] == {"first": [first, second], "copy": [first]}
    for path in ("GET /turns/other", "DELETE /sessions/other"):
        status, answer = ask(port, path, bea)
        assert (status, answer["error"]["type"]) == (403, "session_forbidden")
    assert ask(port, "DELETE /sessions/first", bea) == (204, None)
    assert [it["sessionId"] for it in ask(port, "GET /export", bea)[1]["sessions"]] == ["copy"]
    assert ask(port, "GET /turns/first", bea) == (200, [])


def test_the_body_can_be_read_twice(port: int) -> None:
    assert ask(port, "POST /twice", TOKEN, b"12345") == (200, [5, 5])


def test_the_error_of_a_handler_speaks_of_no_turn(port: int) -> None:
    error = {"type": "internal_error", "message": "Internal error."}
    assert ask(port, "GET /things/1") == (500, {"error": error})


def test_sessions_of_nobody_are_not_listed(port: int) -> None:
    status, answer = ask(port, "GET /export")
    assert (status, answer["error"]["type"]) == (400, "actor_required")


@pytest.mark.parametrize("path", ["GET /turns/a.b", "DELETE /sessions/a.b"])
def test_an_invalid_id_of_a_session_is_refused(port: int, path: str) -> None:
    status, answer = ask(port, path, {**TOKEN, ACTOR: "ada"})
    assert (status, answer["error"]["type"]) == (400, "invalid_session_id")


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/things/1", "GET, HEAD, PUT"),
        ("/sessions/1", "DELETE"),
        ("/invocations", "POST"),
        ("/nowhere", ""),
    ],
)
def test_a_preflight_lists_the_methods_of_its_route(port: int, path: str, methods: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {"Origin": PAGE, "Access-Control-Request-Method": "PUT"}
    connection.request("OPTIONS", path, headers=headers)
    answer = connection.getresponse()
    connection.close()
    assert (answer.status, answer.getheader("Access-Control-Allow-Methods")) == (200, methods)
