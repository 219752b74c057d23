"""The HTTP contract and the commands."""

import asyncio
from unittest.mock import Mock

import pytest
from client import ACTOR, EVENTS, KEY, Client, run
from script import Fail, Reply, ToolCall, Wait

FOREIGN_HOST = {"Host": "localhost.evil.example"}
INVALID_ACTOR_AND_KEY = {ACTOR: "a@b", KEY: "a b"}
LONG_ID = "x" * 257
LARGE_BODY = b"x" * 2000
DEEPEST = b"[" * 63 + b"]" * 63  # 63 levels, to nest in an object


async def test_invocations_are_posts() -> None:
    response = await Client().get("/invocations")
    assert response.status == 405
    assert response.error == "method_not_allowed"


async def test_an_unknown_path_is_not_found() -> None:
    response = await Client().post({}, path="/other", headers=FOREIGN_HOST)
    assert response.status == 404
    assert response.error == "not_found"


async def test_a_ping_checks_the_host() -> None:
    response = await Client().get("/ping", headers=FOREIGN_HOST)
    assert response.status == 403
    assert response.error == "origin_forbidden"


async def test_the_origin_is_checked_first() -> None:
    client = Client(max_body_bytes=1000)
    headers = {"Origin": "null", **INVALID_ACTOR_AND_KEY}
    response = await client.post(LARGE_BODY, session="s", headers=headers)
    assert response.status == 403
    assert response.error == "origin_forbidden"


async def test_the_size_of_the_body_is_checked_before_the_session_id() -> None:
    client = Client(max_body_bytes=1000)
    response = await client.post(LARGE_BODY, session=LONG_ID, headers=INVALID_ACTOR_AND_KEY)
    assert response.status == 413
    assert response.error == "payload_too_large"
    assert response.session_id != LONG_ID


async def test_the_session_id_is_checked_before_the_json() -> None:
    response = await Client().post(b"no JSON", session=LONG_ID, headers=INVALID_ACTOR_AND_KEY)
    assert response.status == 400
    assert response.error == "invalid_session_id"
    assert response.session_id != LONG_ID


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"NaN", id="NaN"),
        pytest.param(b'"\xff"', id="invalid UTF-8"),
        pytest.param(b"[" + DEEPEST + b"]", id="65 levels"),
    ],
)
async def test_the_json_is_checked_before_the_actor(value: bytes) -> None:
    body = b'{"prompt": ' + value + b"}"
    response = await Client().post(body, session="s", headers=INVALID_ACTOR_AND_KEY)
    assert response.status == 400
    assert response.error == "invalid_json"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"prompt": 1}', id="a number"),
        pytest.param(rb'{"prompt": "\ufeff"}', id="a blank prompt"),
        pytest.param(rb'{"prompt": "\ud800"}', id="a lone surrogate"),
        pytest.param(b'{"prompt": "12"}', id="a long prompt"),
        pytest.param(b'{"prompt": "1", "end_session": true}', id="a prompt and an end"),
    ],
)
async def test_the_body_is_checked_before_the_actor(body: bytes) -> None:
    client = Client(max_prompt_chars=1)
    response = await client.post(body, session="s", headers=INVALID_ACTOR_AND_KEY)
    assert response.status == 400
    assert response.error == "invalid_request"
    assert response.session_id == "s"


async def test_the_limits_of_a_request_are_inclusive() -> None:
    client = Client(max_prompt_chars=1)
    many_brackets = b'"' + b"[" * 100 + b'"'
    body = b'{"prompt": "\xc3\xa9", "deep": ' + DEEPEST + b', "text": ' + many_brackets + b"}"
    assert (await client.post(body)).status == 200


async def test_a_server_for_other_machines_accepts_their_host() -> None:
    response = await Client(host="0.0.0.0").say(headers={"Host": "agent.example.org"})
    assert response.status == 200


async def test_a_reply_can_be_json() -> None:
    call = ToolCall("word_count", {"text": "a b"})
    client = Client([Reply("Counting: ", "two"), call], Reply(". \ud800"))
    response = await client.say(session="s")
    assert response.status == 200
    assert response.session_id == "s"
    body = {"session_id": "s", "turn": 1, "model": "offline"}
    assert response.body == {**body, "reply": "Counting: two. \ufffd"}


async def test_a_reply_can_be_a_stream() -> None:
    call = ToolCall("word_count", {"text": "a b"})
    client = Client([Reply(" ", "Zwölf"), call], Reply("\ud800"))
    response = await client.say(session="s", headers=EVENTS)
    assert response.status == 200
    assert response.session_id == "s"
    assert response.text == (
        'data: " "\n\n'
        'data: "Zwölf"\n\n'
        'data: "\ufffd"\n\n'
        'event: done\ndata: {"session_id":"s","turn":1,"model":"offline"}\n\n'
    )


async def test_a_repeated_request_returns_the_whole_reply() -> None:
    client = Client(Reply("Hello, ", "Ada."))
    await client.say(session="s", key="k", headers=EVENTS)
    events = await client.say(session="s", key="k", headers=EVENTS)
    assert events.text == (
        'data: "Hello, Ada."\n\nevent: done\ndata: {"session_id":"s","turn":1}\n\n'
    )
    json = await client.say(session="s", key="k")
    assert json.body == {"session_id": "s", "turn": 1, "reply": "Hello, Ada."}
    assert len(client.model.requests) == 1


async def test_a_failure_before_any_text_is_a_status(caplog: pytest.LogCaptureFixture) -> None:
    client = Client([Reply(" "), Fail(ValueError("secret"))])
    response = await client.say(session="s", headers=EVENTS)
    assert response.status == 502
    assert response.session_id == "s"
    assert response.error == "model_failed"
    assert "secret" not in response.text
    assert "secret" not in caplog.text


async def test_a_failure_after_text_is_an_event(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(Reply("Hello"))
    client.runtime.committed = Mock(side_effect=ValueError("secret"))  # type: ignore[method-assign]
    response = await client.say(headers=EVENTS)
    assert response.status == 200
    assert response.text.startswith(
        'data: "Hello"\n\nevent: error\ndata: {"error":{"type":"internal_error"'
    )
    assert "secret" not in response.text
    assert "secret" not in caplog.text


async def test_a_silent_stream_has_comments() -> None:
    answer = Wait(asyncio.Event())
    client = Client([answer, Fail(ValueError("secret"))], keep_alive_seconds=0.02)
    request = client.start(headers=EVENTS)
    await request.receive_text(": keep-alive\n\n" * 2)
    answer.event.set()
    response = await request.response()
    assert response.status == 200
    *comments, error, end = response.text.split("\n\n")
    assert set(comments) == {": keep-alive"}
    assert error.startswith('event: error\ndata: {"error":{"type":"model_failed"')
    assert end == ""


async def test_a_rejection_in_the_queue_is_a_status() -> None:
    answer = Wait(asyncio.Event())
    client = Client([answer, Reply("one")], keep_alive_seconds=0.02)
    running = client.start(session="s", headers=EVENTS)
    await answer.reached.wait()
    waiting = client.start(session="s", headers=EVENTS, replace_turn=9)
    # Longer than the silence before a comment.
    await running.receive_text(": keep-alive\n\n" * 9)
    answer.event.set()
    response = await waiting.response()
    assert response.status == 400
    assert response.error == "invalid_request"
    await running.response()


async def test_a_shutdown_lets_running_turns_finish() -> None:
    answer = Wait(asyncio.Event())
    client = Client([answer, Reply("done")])
    request = client.start()
    await answer.reached.wait()
    drain = asyncio.create_task(client.runtime.turns.drain(30))
    await asyncio.sleep(0)
    assert (await client.say()).error == "draining"
    assert (await client.say(headers=FOREIGN_HOST)).error == "origin_forbidden"
    answer.event.set()
    assert (await request.response()).reply == "done"
    await drain


async def test_a_shutdown_cancels_turns_after_the_grace_period() -> None:
    answer = Wait(asyncio.Event())
    client = Client(answer)
    request = client.start()
    await answer.reached.wait()
    async with asyncio.timeout(30):
        await client.runtime.turns.drain(0.01)
    assert (await request.response()).error == "draining"


async def test_ping_is_busy_while_a_turn_runs() -> None:
    answer = Wait(asyncio.Event())
    client = Client([answer, Reply("done")])
    request = client.start()
    await answer.reached.wait()
    assert (await client.get("/ping")).body["status"] == "HealthyBusy"
    answer.event.set()
    await request.response()
    ping = (await client.get("/ping")).body
    assert ping["status"] == "Healthy"
    assert isinstance(ping["time_of_last_update"], int)


def test_check_names_a_bad_setting_and_its_allowed_values() -> None:
    result = run("check", "--json", env={"PORT": "70000"})
    assert result.exit_code == 1
    message = "PORT is '70000': use a whole number from 0 to 65535."
    assert f'"message":"{message}"' in result.stdout


def test_new_in_chat_starts_a_session() -> None:
    result = run("chat", input="I am Ada.\n/new\nWho am I?\n")
    assert 'Now you said: "Who am I?"' in result.stdout
    assert "Earlier you said" not in result.stdout


def test_chat_sends_neither_commands_nor_blank_lines_to_the_model() -> None:
    result = run("chat", input="I am Ada.\n\n/help\nquit\nAfter the end\n")
    assert result.exit_code == 0
    assert result.stdout.count("you said") == 1


def test_chat_remembers_the_conversation() -> None:
    result = run("chat", input="I am Ada.\nWho am I?\n")
    assert 'Earlier you said: "I am Ada." Now you said: "Who am I?"' in result.stdout
