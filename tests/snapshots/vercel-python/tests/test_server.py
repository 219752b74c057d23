"""The HTTP contract, and what the settings allow."""

import asyncio
import re
from typing import Any
from unittest.mock import Mock, patch

import pytest
from click.testing import CliRunner
from client import ACTOR, JSON, KEY, POST, SESSION, Client

from app.main import cli

EVENTS = {"Host": "[::1]:8080", SESSION: "s"}
EVIL = {"Host": "localhost.evil.example"}
BAD = {ACTOR: "a@b", KEY: "a b", **EVENTS}
DEEP = b"[" * 63 + b"]" * 63
PROMPT, NO_JSON = b'{"prompt": "1"}', [b"NaN", b'"\xff"', b"[%s]" % DEEP]
NO_PROMPT = [b"1", rb'"\ufeff"', rb'"\ud800"', b'"12"', b'"1", "end_session": true']
REFUSED = [
    ("GET /invocations", JSON, b"", 405, "method_not_allowed"),
    ("POST /invocations/", EVIL, b"", 404, "not_found"),
    ("GET /ping", EVIL, b"", 403, "origin_forbidden"),
    (POST, {"Origin": "null"} | BAD, b"x" * 2000, 403, "origin_forbidden"),
    (POST, BAD | {SESSION: "x" * 257}, b"x" * 2000, 413, "payload_too_large"),
    (POST, BAD | {SESSION: "x" * 257}, b"no JSON", 400, "invalid_session_id"),
    *((POST, BAD, b'{"prompt": %s}' % text, 400, "invalid_json") for text in NO_JSON),
    *((POST, EVENTS, b'{"prompt": %s}' % text, 400, "invalid_request") for text in NO_PROMPT),
    (POST, EVENTS, b"[]", 400, "invalid_request"),
]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row[-1])
async def test_the_first_failing_check_is_reported(row: Any) -> None:
    *request, status, error = row
    answer, session, text = await Client(max_body_bytes=1000, max_prompt_chars=1).send(*request)
    assert (answer, f'"type":"{error}"' in text) == (status, True)
    assert session != "x" * 257


async def test_a_reply_comes_as_events_or_as_json_and_can_be_replayed() -> None:
    client = Client([" ", "hé", ("call",)], ["\ud800"], host="0.0.0.0", max_prompt_chars=1)
    body = b'{"prompt": "\xc3\xa9", "x": %s, "y": "[[%s"}' % (DEEP, DEEP)
    headers = {"Host": "example.org", SESSION: "s", KEY: "k"}
    done = 'event: done\ndata: {"session_id":"s","turn":1}\n\n'
    events = f'data: " "\n\ndata: "hé"\n\ndata: "\ufffd"\n\n{done}'
    assert await client.send(POST, headers, body) == (200, "s", events)
    assert await client.send(POST, headers, body) == (200, "s", f'data: " hé\ufffd"\n\n{done}')
    reply = '{"session_id":"s","turn":1,"reply":" hé\ufffd"}'
    assert await client.send(POST, JSON | headers, body) == (200, "s", reply)


async def test_a_failure_is_a_status_until_there_is_text_and_quotes_nothing(caplog: Any) -> None:
    client = Client([" ", ValueError("secret")])
    status, session, error = await client.send(POST, EVENTS, PROMPT)
    assert (status, session, "model_failed" in error) == (502, "s", True)
    client.runtime.committed = Mock(side_effect=ValueError("secret"))  # type: ignore[method-assign]
    _, _, events = await client.send(POST, EVENTS, PROMPT)
    assert events.startswith('data: "ok"\n\nevent: error\ndata: {"error":{"type":"internal_error"')
    assert "secret" not in error + events + caplog.text


async def test_a_silent_stream_has_comments_but_what_refuses_a_turn_is_a_status() -> None:
    client = Client([0.6, ValueError("secret")], keep_alive_seconds=0.2)
    silent = asyncio.create_task(client.send(POST, EVENTS, PROMPT))
    await asyncio.sleep(0.1)
    queued = await client.send(POST, EVENTS, b'{"replace_turn": 9, "prompt": "1"}')
    status, _, events = await silent
    assert (queued[0], status) == (400, 200)
    assert re.match('(: keep-alive\n\n)+event: error\ndata: {"error":{"type":"model_f', events)


async def test_a_shutdown_lets_turns_finish_and_then_cancels_them() -> None:
    client = Client([0.2, "done"], [3])
    turns = [asyncio.create_task(client.say(session)) for session in "ab"]
    await asyncio.sleep(0.1)
    _, _, busy = await client.send("GET /ping", JSON, b"")
    drain = asyncio.create_task(client.runtime.turns.drain(0.4))
    assert await client.say("c") == "draining"
    assert (await client.send(POST, EVIL, b""))[0] == 403
    assert await asyncio.gather(drain, *turns) == [None, "1", "draining"]
    _, _, ping = await client.send("GET /ping", JSON, b"")
    assert "HealthyBusy" in busy and re.fullmatch(r'{"status":"Healthy",".*":\d+}', ping)


def test_a_bad_setting_is_named_with_what_is_allowed() -> None:
    result = CliRunner().invoke(cli, ["check", "--json"], env={"PORT": "70000"})
    what = "PORT is '70000': allowed is a whole number from 0 to 65535."
    assert (result.exit_code, f'"message":"{what}"' in result.stdout) == (1, True)


# Without your capabilities, which may refuse to start, or to answer nobody.
@patch("app.capabilities.OWN_CAPABILITIES", [])
def test_chat_obeys_commands_that_never_go_to_the_model() -> None:
    result = CliRunner().invoke(cli, ["chat"], input="I am Ada.\n\n/new\nWho am I?\n/help\nquit\n")
    assert (result.exit_code, 'Now you said: "Who am I?"' in result.stdout) == (0, True)
    assert not re.search("Earlier you said|said: ./|said: .quit", result.stdout)


@patch("app.capabilities.OWN_CAPABILITIES", [])
def test_chat_talks_line_by_line_from_a_pipe() -> None:
    result = CliRunner().invoke(cli, ["chat"], input="I am Ada.\nWho am I?\n")
    assert 'Earlier you said: "I am Ada." Now you said: "Who am I?"' in result.stdout
