"""The HTTP contract, and what the settings allow."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from app.main import cli
from app.server import Turns, create_app
from click.testing import CliRunner
from test_turn import Talk

PREFIX = "X-Amzn-Bedrock-AgentCore-Runtime-"
SESSION, ACTOR = PREFIX + "Session-Id", PREFIX + "User-Id"
JSON = {"Accept": "application/json", SESSION: "s1"}
DEEP = "[" * 63 + "]" * 63
REFUSED = [
    ("GET", {}, "", 405, "method_not_allowed"),
    ("POST /ping", {}, "", 405, "method_not_allowed"),
    ("POST /invocations/", {}, "", 404, "not_found"),
    ("POST /other", {"Host": "evil.example"}, "", 404, "not_found"),
    ("GET /ping", {"Host": "evil.example"}, "", 403, "origin_forbidden"),
    ("POST", {"Origin": "http://evil.example"}, "x" * 2000, 403, "origin_forbidden"),
    ("POST", {"Origin": "null"}, "", 403, "origin_forbidden"),
    ("POST", {SESSION: "-"}, "x" * 2000, 413, "payload_too_large"),
    ("POST", {SESSION: "-"}, "no JSON", 400, "invalid_session_id"),
    ("POST", {SESSION: "x" * 257}, "{}", 400, "invalid_session_id"),
    ("POST", {ACTOR: "a@b"}, '{"prompt": NaN}', 400, "invalid_json"),
    ("POST", {}, '{"prompt": "a", "x": [' + DEEP + "]}", 400, "invalid_json"),
    ("POST", {}, b'{"prompt": "\xff"}', 400, "invalid_json"),
    ("POST", {ACTOR: "a@b"}, "[]", 400, "invalid_request"),
    ("POST", {}, "{}", 400, "invalid_request"),
    ("POST", {}, '{"prompt": 1}', 400, "invalid_request"),
    ("POST", {}, '{"prompt": "\\u2003\\ufeff"}', 400, "invalid_request"),
    ("POST", {}, '{"prompt": "\\ud800"}', 400, "invalid_request"),
    ("POST", {}, json.dumps({"prompt": "x" * 101}), 400, "invalid_request"),
    ("POST", {}, '{"prompt": "a", "end_session": true}', 400, "invalid_request"),
    ("POST", {}, '{"end_session": true}', 400, "invalid_request"),
    ("POST", {SESSION: "s", ACTOR: "a@b"}, '{"prompt": "a"}', 400, "invalid_actor"),
    ("POST", {"Idempotency-Key": "k"}, '{"prompt": "a"}', 400, "invalid_request"),
    ("POST", {**JSON, "Idempotency-Key": "é"}, '{"prompt": "a"}', 400, "invalid_request"),
]


class Client(Talk):
    """A client of the server of a scripted model."""

    def __init__(self, *script: list[Any], **settings: Any) -> None:
        super().__init__(*script, max_body_bytes=1000, max_prompt_chars=100, **settings)
        self.turns = Turns()
        transport = httpx.ASGITransport(create_app(self.parts, self.turns), False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost:8080")

    async def post(self, body: Any, headers: dict[str, str] = JSON) -> httpx.Response:
        return await self.http.post("/invocations", json=body, headers=headers)


@pytest.mark.parametrize(("route", "headers", "body", "status", "error"), REFUSED)
async def test_the_first_check_that_fails_is_told(
    route: str, headers: Any, body: Any, status: int, error: str
) -> None:
    client = Client()
    method, path = (route + " /invocations").split()[:2]
    encoded = {name: value.encode() for name, value in headers.items()}
    response = await client.http.request(method, path, content=body, headers=encoded)
    assert (response.status_code, response.json()["error"]["type"]) == (status, error)
    is_session = method == "POST" and path == "/invocations" and error != "invalid_session_id"
    assert (SESSION in response.headers) == (is_session and headers.get(SESSION) != "-")
    assert client.model.calls == []


async def test_a_turn_is_answered_as_json_or_as_events() -> None:
    client = Client([" ", "hé", "llo"], [" ", "two"])
    response = await client.post({"prompt": "one", "unknown": DEEP}, {})
    session_id = response.headers[SESSION]
    expected = 'data: " "\n\ndata: "hé"\n\ndata: "llo"\n\n'
    done = f'event: done\ndata: {{"session_id":"{session_id}","turn":1}}\n\n'
    assert (response.status_code, response.text) == (200, expected + done)
    response = await client.post({"prompt": "two"}, {**JSON, SESSION: session_id})
    assert response.text == f'{{"session_id":"{session_id}","turn":2,"reply":" two"}}'
    response = await client.post({"prompt": "three"}, {"Accept": "application/json"})
    assert (response.json()["turn"], response.headers[SESSION] != session_id) == (1, True)


async def test_a_failure_is_a_status_until_text_was_sent_and_then_an_event() -> None:
    client = Client([" ", ValueError("secret")], ["half", ValueError("secret")], [RuntimeError()])
    response = await client.post({"prompt": "one"}, {})
    assert (response.status_code, response.json()["error"]["type"]) == (502, "model_failed")
    response = await client.post({"prompt": "one"}, {SESSION: "s"})
    assert response.text.startswith('data: "half"\n\nevent: error\ndata: {"error":{"type":"model_f')
    assert "secret" not in response.text
    client.parts.record = None  # type: ignore[assignment]
    assert (await client.post({"prompt": "two"})).json()["error"]["type"] == "model_failed"
    assert (await client.post({"prompt": "two"})).json()["error"]["type"] == "internal_error"


async def test_a_session_can_be_ended_by_its_actor() -> None:
    client = Client()
    await client.post({"prompt": "one"}, {**JSON, ACTOR: "alice"})
    assert (await client.post({"end_session": True})).status_code == 403
    response = await client.post({"end_session": True}, {**JSON, ACTOR: "alice"})
    assert response.json() == {"session_id": "s1", "ended": True}
    assert (await client.post({"prompt": "two"})).json()["turn"] == 1


async def test_a_shutdown_lets_turns_finish_and_then_cancels_them() -> None:
    gate = asyncio.Event()
    client = Client([gate, "done"], [None])
    asks = [asyncio.create_task(client.post({"prompt": "x"}, {**JSON, SESSION: s})) for s in "ab"]
    await asyncio.sleep(0.05)
    assert (await client.http.get("/ping")).json()["status"] == "HealthyBusy"
    drain = asyncio.create_task(client.turns.drain(0.2))
    await asyncio.sleep(0.05)
    assert (await client.post({"prompt": "new"})).json()["error"]["type"] == "draining"
    gate.set()
    assert [(await ask).status_code for ask in asks] == [200, 503]
    await drain
    ping = (await client.http.get("/ping")).json()
    assert (ping["status"], type(ping["time_of_last_update"])) == ("Healthy", int)


async def test_a_client_that_leaves_ends_its_turn() -> None:
    client = Client([None])
    body = [{"type": "http.request", "body": b'{"prompt": "one"}'}]

    async def receive() -> Any:
        return body.pop() if body else await asyncio.sleep(0.05, {"type": "http.disconnect"})

    async def send(message: Any) -> None: ...

    headers = [(b"host", b"localhost"), (SESSION.lower().encode(), b"s1")]
    scope = {"type": "http", "method": "POST", "path": "/invocations", "headers": headers}
    await create_app(client.parts, client.turns)(scope, receive, send)
    assert not client.turns.tasks
    assert (await client.post({"prompt": "two"})).json()["turn"] == 1
    assert client.model.calls == [["one"], ["two"]]


def test_a_bad_setting_is_named_with_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "70000")
    result = CliRunner().invoke(cli, ["check", "--json"])
    [found] = json.loads(result.stdout)["diagnostics"]
    assert (result.exit_code, found["id"], found["file"]) == (1, "SET-PORT", "environment")
    assert found["message"] == "PORT is '70000': allowed is a whole number from 0 to 65535."
    assert CliRunner().invoke(cli, ["serve"]).exit_code == 1


def test_chat_talks_line_by_line_from_a_pipe() -> None:
    result = CliRunner().invoke(cli, ["chat"], input="I am Ada.\nuse word_count: a b\n")
    assert result.exit_code == 0
    assert 'Earlier you said: "I am Ada."' in result.stdout
    assert "The tool answered: 2" in result.stdout
