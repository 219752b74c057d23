"""The HTTP contract, and what the settings allow."""

import asyncio
import json
import re
from typing import Any

import pytest
from click.testing import CliRunner
from test_turn import ACTOR, JSON, KEY, POST, SESSION, Client

from app.contract import AgentError
from app.main import cli

EVENTS = {"Host": "[::1]:8080", SESSION: "s"}
EVIL = {"Host": "localhost.evil.example"}
ODD = EVENTS | {ACTOR: "a@b", KEY: "a b"}
BAD = ODD | {SESSION: "x" * 257}
PROMPT = b'{"prompt": "hi"}'
DEEP = b"[" * 63 + b"]" * 63
# The first check that fails is told, and what comes later may be wrong too.
REFUSED = [
    ("GET /invocations", JSON, b"", 405, "method_not_allowed"),
    ("POST /invocations/", EVIL, b"", 404, "not_found"),
    ("GET /ping", EVIL, b"", 403, "origin_forbidden"),
    (POST, BAD | {"Origin": "http://evil.example"}, b"x" * 2000, 403, "origin_forbidden"),
    (POST, BAD, b"x" * 2000, 413, "payload_too_large"),
    (POST, BAD, b"no JSON", 400, "invalid_session_id"),
    (POST, ODD, b'{"prompt": "a", "x": NaN}', 400, "invalid_json"),
    (POST, JSON, b'{"prompt": "a", "x": [' + DEEP + b"]}", 400, "invalid_json"),
    (POST, JSON, b'{"prompt": "\xff"}', 400, "invalid_json"),
    (POST, JSON, b"[]", 400, "invalid_request"),
    (POST, JSON, b'{"prompt": 1}', 400, "invalid_request"),
    (POST, JSON, b'{"prompt": "\\u2003\\ufeff"}', 400, "invalid_request"),
    (POST, JSON, b'{"prompt": "\\ud800"}', 400, "invalid_request"),
    (POST, JSON, b'{"prompt": "%s"}' % (b"x" * 101), 400, "invalid_request"),
    (POST, EVENTS, b'{"prompt": "a", "end_session": true}', 400, "invalid_request"),
    (POST, ODD, PROMPT, 400, "invalid_actor"),
    (POST, EVENTS | {KEY: "a b"}, PROMPT, 400, "invalid_request"),
]


@pytest.mark.parametrize("row", REFUSED)
async def test_the_first_check_that_fails_is_told(row: Any) -> None:
    *request, status, error = row
    client = Client(max_body_bytes=1000, max_prompt_chars=100)
    answer, session, text = await client.send(*request)
    assert (answer, json.loads(text)["error"]["type"]) == (status, error)
    assert session != BAD[SESSION] and not client.model.calls


async def test_a_reply_comes_as_events_or_as_json_and_can_be_replayed() -> None:
    client = Client([" ", "hé", ("call",)], ["\ud800"], host="0.0.0.0", max_prompt_chars=100)
    body = b'{"prompt": "%s", "x": %s, "y": "[[%s"}' % ("é".encode() * 100, DEEP, DEEP)
    headers = {"Host": "example.org", SESSION: "s", KEY: "k"}
    done = 'event: done\ndata: {"session_id":"s","turn":1}\n\n'
    events = f'data: " "\n\ndata: "hé"\n\ndata: "\ufffd"\n\n{done}'
    assert await client.send(POST, headers, body) == (200, "s", events)
    assert await client.send(POST, headers, body) == (200, "s", f'data: " hé\ufffd"\n\n{done}')
    answer = '{"session_id":"s","turn":1,"reply":" hé\ufffd"}'
    assert await client.send(POST, JSON | headers, body) == (200, "s", answer)


async def test_a_failure_is_a_status_until_there_is_text_and_tells_no_secrets(caplog: Any) -> None:
    client, error = Client([" ", ValueError("secret")], ["a", ValueError("secret")]), AgentError("model_failed")
    text = json.dumps(error.body, separators=(",", ":"))
    assert await client.send(POST, EVENTS, PROMPT) == (502, "s", text)
    events = f'data: "a"\n\nevent: error\ndata: {text}\n\n'
    assert await client.send(POST, EVENTS, PROMPT) == (200, "s", events)
    client.parts.sessions = None  # type: ignore[assignment]
    status, _, text = await client.send(POST, EVENTS, PROMPT)
    assert (status, json.loads(text)) == (500, AgentError("internal_error").body)
    assert "secret" not in caplog.text and "NoneType" not in caplog.text


async def test_a_shutdown_lets_turns_finish_and_then_cancels_them() -> None:
    client = Client([0.2, "done"], [3])
    turns = [asyncio.create_task(client.say(session)) for session in "ab"]
    await asyncio.sleep(0.1)
    _, _, busy = await client.send("GET /ping", JSON, b"")
    drain = asyncio.create_task(client.turns.drain(0.4))
    await asyncio.sleep(0.05)
    assert await client.say("c") == "draining"
    assert (await client.send(POST, EVIL, b""))[0] == 403
    assert await asyncio.gather(drain, *turns) == [None, "1", "draining"]
    _, _, ping = await client.send("GET /ping", JSON, b"")
    assert "HealthyBusy" in busy and re.fullmatch(r'{"status":"Healthy",".*":\d+}', ping)


def test_a_bad_setting_is_named_with_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "70000")
    result = CliRunner().invoke(cli, ["check", "--json"])
    [found] = json.loads(result.stdout)["diagnostics"]
    assert (result.exit_code, found["id"]) == (1, "SET-PORT")
    assert found["message"] == "PORT is '70000': allowed is a whole number from 0 to 65535."


def test_chat_talks_line_by_line_from_a_pipe() -> None:
    result = CliRunner().invoke(cli, ["chat"], input="I am Ada.\nWho am I?\n")
    assert 'Earlier you said: "I am Ada." Now you said: "Who am I?"' in result.stdout
