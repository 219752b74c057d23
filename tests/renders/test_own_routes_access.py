"""Routes of an owner: actor, token, content types and body limit; the sessions of an actor."""

import http.client
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.installed import clean_environment, environment, link_environment, rendered

pytestmark = pytest.mark.slow

ROUTES = '''"""Routes of a shop."""

from dataclasses import asdict

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .harness import Handler, Route, Runtime


async def who(request: Request, runtime: Runtime) -> Response:
    return JSONResponse({"actor": request.state.actor, "bytes": len(await request.body())})


async def export(request: Request, runtime: Runtime) -> Response:
    actor = request.state.actor
    sessions = await runtime.sessions.list(actor)
    turns = {it.session_id: await runtime.sessions.turns(it.session_id, actor) for it in sessions}
    known = [asdict(session) for session in sessions]
    texts = {id: [asdict(turn) for turn in held] for id, held in turns.items()}
    return JSONResponse({"sessions": known, "turns": texts})


async def turns(request: Request, runtime: Runtime) -> Response:
    held = await runtime.sessions.turns(request.path_params["id"], request.state.actor)
    return JSONResponse([asdict(turn) for turn in held])


async def end(request: Request, runtime: Runtime) -> Response:
    await runtime.sessions.end(request.path_params["id"], request.state.actor)
    return Response(status_code=204)


async def order(request: Request, runtime: Runtime) -> Response:
    value = await request.json()
    if "id" not in value:
        raise HTTPException(422, "Send the id of an order.", {"X-Hint": "id"})
    if value["id"] == 0:
        raise ValueError("secret")
    if value["id"] == 2:
        raise HTTPException(401, "Sign in first.")
    raise HTTPException(404, "There is no such order.")


UPLOAD = ("multipart/form-data", "text/csv")
ROUTES: dict[str, Handler | Route] = {
    "POST /who": who,
    "POST /hook": Route(who, public=True),
    "POST /upload": Route(who, types=UPLOAD, max_bytes=5_000),
    "GET /export": export,
    "GET /turns/{id}": turns,
    "DELETE /sessions/{id}": end,
    "PUT /order": order,
}
'''
PREFIX = "X-Amzn-Bedrock-AgentCore-Runtime-"
ACTOR, SESSION = PREFIX + "User-Id", PREFIX + "Session-Id"
PAGE = "https://shop.example"
TOKEN = {"Authorization": "Bearer of-the-shop"}
Answer = tuple[int, Any]
ROWS = ["strands-python", pytest.param("vercel-python", marks=pytest.mark.full)]


@pytest.fixture(scope="module", params=ROWS)
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    project = tmp_path_factory.mktemp(request.param) / "my-agent"
    shutil.copytree(rendered(request.param), project)
    link_environment(project, environment(request.param))
    (project / "src" / "my_agent" / "routes.py").write_text(ROUTES, "utf-8")
    settings = {"API_TOKEN": "of-the-shop", "ALLOWED_ORIGINS": PAGE, "MAX_BODY_BYTES": "1000"}
    code = "from my_agent.main import cli; cli()"
    source = {"PYTHONPATH": str(project / "src")}
    server = subprocess.Popen(
        [str(project / ".venv" / "bin" / "python"), "-c", code, "serve"],
        cwd=project,
        env={**clean_environment(), **source, **settings, "PORT": "0"},
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
    assert {it["session_id"]: it["turns"] for it in answer["sessions"]} == {"first": 2, "copy": 1}
    assert all(it["saved_at"] for it in answer["sessions"])
    first = {"number": 1, "prompt": "One.", "reply": replies[0]}
    second = {"number": 2, "prompt": "Two.", "reply": replies[1]}
    assert answer["turns"] == {"first": [first, second], "copy": [first]}
    status, answer = ask(port, "GET /turns/other", bea)
    assert (status, answer["error"]["type"]) == (403, "session_forbidden")
    status, answer = ask(port, "DELETE /sessions/other", bea)
    assert (status, answer["error"]["type"]) == (403, "session_forbidden")
    assert ask(port, "DELETE /sessions/first", bea) == (204, None)
    assert [it["session_id"] for it in ask(port, "GET /export", bea)[1]["sessions"]] == ["copy"]
    assert ask(port, "GET /turns/first", bea) == (200, [])


@pytest.mark.parametrize(
    ("body", "status", "type", "message"),
    [
        (b"{", 400, "invalid_json", "Send one JSON value in UTF-8"),
        (b"\xff", 400, "invalid_json", "Send one JSON value in UTF-8"),
        (b"[" * 100_000, 413, "payload_too_large", "larger than 1000 bytes"),
        (b"[" * 999, 400, "invalid_json", "Send one JSON value in UTF-8"),
        (b"{}", 422, "invalid_request", "Send the id of an order."),
        (b'{"id": 1}', 404, "not_found", "There is no such order."),
        (b'{"id": 2}', 401, "unauthorized", "Sign in first."),
        (b'{"id": 0}', 500, "internal_error", "Internal error."),
    ],
)
def test_an_error_of_a_handler_has_its_status_and_says_nothing_of_a_turn(
    port: int, body: bytes, status: int, type: str, message: str
) -> None:
    found, answer = ask(port, "PUT /order", TOKEN, body)
    assert (found, answer["error"]["type"]) == (status, type)
    assert answer["error"]["message"].startswith(message) or message in answer["error"]["message"]
    assert "turn" not in answer["error"]["message"]


def test_a_page_may_use_the_methods_of_the_routes(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {"Origin": PAGE, "Access-Control-Request-Method": "PUT"}
    connection.request("OPTIONS", "/order", None, headers)
    answer = connection.getresponse()
    assert answer.status == 200
    allowed = answer.headers["Access-Control-Allow-Methods"].split(", ")
    assert {"DELETE", "GET", "POST", "PUT"} <= {*allowed}
    connection.close()
