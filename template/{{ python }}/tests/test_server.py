"""The HTTP contract, and what the settings allow."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from app.contract import AgentError
from app.main import cli
from app.server import Turns, create_app
from click.testing import CliRunner
from test_turn import Talk

PREFIX = "X-Amzn-Bedrock-AgentCore-Runtime-"
SESSION, ACTOR = PREFIX + "Session-Id", PREFIX + "Custom-Actor-Id"
JSON = {"Accept": "application/json", SESSION: "s1"}
EVIL = "http://localhost.evil.example"
BAD = {SESSION: "x" * 257, ACTOR: "a@b", "Idempotency-Key": "a b"}
BAD_ACTOR = BAD | {SESSION: "s1"}
DEEP = "[" * 63 + "]" * 63
REFUSED = [
    ("GET /invocations", {}, "", 405, "method_not_allowed"),
    ("POST /invocations/", {"Host": "evil.example"}, "", 404, "not_found"),
    ("GET /ping", {"Host": "evil.example"}, "", 403, "origin_forbidden"),
    ("POST", BAD | {"Origin": EVIL}, "x" * 2000, 403, "origin_forbidden"),
    ("POST", BAD, "x" * 2000, 413, "payload_too_large"),
    ("POST", BAD, "no JSON", 400, "invalid_session_id"),
    ("POST", BAD_ACTOR, '{"prompt": "a", "x": NaN}', 400, "invalid_json"),
    ("POST", {}, '{"prompt": "a", "x": [' + DEEP + "]}", 400, "invalid_json"),
    ("POST", {}, b'{"prompt": "\xff"}', 400, "invalid_json"),
    ("POST", {}, "[]", 400, "invalid_request"),
    ("POST", {}, '{"prompt": 1}', 400, "invalid_request"),
    ("POST", {}, '{"prompt": "\\u2003\\ufeff"}', 400, "invalid_request"),
    ("POST", {}, '{"prompt": "\\ud800"}', 400, "invalid_request"),
    ("POST", {}, json.dumps({"prompt": "x" * 101}), 400, "invalid_request"),
    ("POST", JSON, '{"prompt": "a", "end_session": true}', 400, "invalid_request"),
    ("POST", {}, '{"end_session": true}', 400, "invalid_request"),
    ("POST", BAD_ACTOR, '{"prompt": "a"}', 400, "invalid_actor"),
    ("POST", JSON | {"Idempotency-Key": "a b"}, '{"prompt": "a"}', 400, "invalid_request"),
    ("POST", {"Idempotency-Key": "k"}, '{"prompt": "a"}', 400, "invalid_request"),
]


class Client(Talk):
    """A client of the server of a scripted model."""

    def __init__(self, *script: list[Any], **settings: Any) -> None:
        super().__init__(*script, max_body_bytes=1000, max_prompt_chars=100, **settings)
        self.turns = Turns()
        self.app = create_app(self.parts, self.turns)
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost:8080")

    async def post(self, body: Any, headers: dict[str, str] = JSON) -> httpx.Response:
        async with asyncio.timeout(5):
            return await self.http.post("/invocations", json=body, headers=headers)


@pytest.mark.parametrize(("route", "headers", "body", "status", "error"), REFUSED)
async def test_the_first_check_that_fails_is_told(
    route: str, headers: Any, body: Any, status: int, error: str
) -> None:
    client = Client()
    method, path = f"{route} /invocations".split()[:2]
    response = await client.http.request(method, path, content=body, headers=headers)
    assert (response.status_code, response.json()["error"]["type"]) == (status, error)
    assert ("Allow" in response.headers) == (status == 405)
    assert response.headers.get(SESSION) != BAD[SESSION]
    assert client.model.calls == []


async def test_a_turn_is_answered_as_json_or_as_events() -> None:
    client = Client([" ", "hé", "\ud800"], [" ", "two"], host="0.0.0.0")
    response = await client.post({"prompt": "é" * 100, "x": DEEP + "[["}, {"Host": "example.org"})
    session_id = response.headers[SESSION]
    chunks = 'data: " "\n\ndata: "hé"\n\ndata: "\ufffd"\n\n'
    done = f'event: done\ndata: {{"session_id":"{session_id}","turn":1}}\n\n'
    assert (response.status_code, response.text) == (200, chunks + done)
    response = await client.post({"prompt": "two", "x": json.loads(DEEP)}, JSON | {SESSION: session_id})
    assert response.text == f'{{"session_id":"{session_id}","turn":2,"reply":" two"}}'
    response = await client.post({"prompt": "three"}, {"Accept": "application/json"})
    assert (response.json()["turn"], response.headers[SESSION] != session_id) == (1, True)


async def test_a_failure_is_a_status_until_text_was_sent_and_then_an_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failure = ValueError("secret")
    client = Client([" ", failure], ["half", failure])
    response = await client.post({"prompt": "one"}, {SESSION: "s1"})
    assert (response.status_code, response.headers[SESSION]) == (502, "s1")
    assert response.json() == AgentError("model_failed").body
    event = f"event: error\ndata: {json.dumps(response.json(), separators=(',', ':'))}\n\n"
    response = await client.post({"prompt": "one"}, {SESSION: "s1"})
    assert response.text == f'data: "half"\n\n{event}'
    client.recorded = failure  # type: ignore[assignment]
    assert (await client.post({"prompt": "two"})).json() == AgentError("internal_error").body
    assert "secret" not in caplog.text


async def test_a_session_can_be_ended_by_its_actor() -> None:
    client = Client()
    await client.post({"prompt": "one"}, JSON | {ACTOR: "ann"})
    assert (await client.post({"end_session": True})).status_code == 403
    for _ in range(2):
        response = await client.post({"end_session": True}, JSON | {ACTOR: "ann"})
        assert response.json() == {"session_id": "s1", "ended": True}
    assert (await client.post({"prompt": "two"})).json()["turn"] == 1


async def test_a_shutdown_lets_turns_finish_and_then_cancels_them() -> None:
    gate = asyncio.Event()
    client = Client([gate, "done"], [None])
    asks = [asyncio.create_task(client.post({"prompt": "x"}, JSON | {SESSION: s})) for s in "ab"]
    await asyncio.sleep(0.05)
    assert (await client.http.get("/ping")).json()["status"] == "HealthyBusy"
    drain = asyncio.create_task(client.turns.drain(0.2))
    await asyncio.sleep(0.05)
    assert (await client.post({"prompt": "new"})).json()["error"]["type"] == "draining"
    assert (await client.post({}, {"Origin": EVIL})).status_code == 403
    gate.set()
    assert [(await ask).status_code for ask in asks] == [200, 503]
    await drain
    ping = (await client.http.get("/ping")).json()
    assert (ping["status"], type(ping["time_of_last_update"])) == ("Healthy", int)
    client.parts.is_waiting = True
    assert (await client.http.get("/ping")).json()["status"] == "HealthyBusy"


async def test_a_client_that_leaves_ends_its_turn() -> None:
    client = Client(["half", None])
    received = [{"type": "http.disconnect"}, {"type": "http.request", "body": b'{"prompt": "1"}'}]

    async def receive() -> Any:
        return await asyncio.sleep(0.05, received.pop())

    async def send(message: Any) -> None: ...

    headers = [(b"host", b"localhost"), (SESSION.lower().encode(), b"s1"), (b"accept", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/invocations", "headers": headers}
    await client.app(scope, receive, send)
    assert not client.turns.tasks
    assert (await client.post({"prompt": "2"})).json()["turn"] == 1
    assert client.model.calls == ["1", "2"]


def test_a_bad_setting_is_named_with_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "70000")
    result = CliRunner().invoke(cli, ["check", "--json"])
    [found] = json.loads(result.stdout)["diagnostics"]
    assert (result.exit_code, found["id"]) == (1, "SET-PORT")
    assert found["message"] == "PORT is '70000': allowed is a whole number from 0 to 65535."


def test_chat_talks_line_by_line_from_a_pipe() -> None:
    result = CliRunner().invoke(cli, ["chat"], input="I am Ada.\nuse word_count: a b\n")
    assert 'Earlier you said: "I am Ada."' in result.stdout
    assert "The tool answered: 2" in result.stdout
