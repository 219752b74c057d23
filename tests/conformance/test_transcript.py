"""The offline model: the same conversation has the same transcript, whoever renders it."""

import json

import pytest

from tests.conformance.client import JSON, SESSION
from tests.conformance.server import Fleet, Server
from tests.conformance.transcript import SAID, transcript


@pytest.fixture
def server(fleet: Fleet) -> Server:
    return fleet.shared(offline=True)


@pytest.mark.full
def test_the_transcript_is_the_same_in_two_runs(fleet: Fleet) -> None:
    one, two = fleet.fresh(offline=True), fleet.fresh(offline=True)
    first, second = transcript(one), transcript(two)
    assert first == second
    assert {entry["status"] for entry in first} == {200, 400, 403, 404, 405, 409, 413}


def say(server: Server, session: str, text: str) -> str:
    reply = server.post({"prompt": text}, {SESSION: session, **JSON})
    assert reply.status == 200, reply
    return reply.text


def test_it_states_its_limits(server: Server) -> None:
    assert "not a language model" in say(server, "what-it-is", "Who are you?")


def test_it_quotes_the_last_five_texts(server: Server) -> None:
    for text in ("This one is the sixth.", *SAID[:4]):
        say(server, "five-texts", text)
    reply = say(server, "five-texts", SAID[4])
    assert all(text in reply for text in SAID)
    assert "This one is the sixth." not in reply


def test_events_and_json_carry_the_same_reply(server: Server) -> None:
    reply = server.post({"prompt": SAID[2]}, {SESSION: "streamed"})
    assert reply.text == say(server, "at-once", SAID[2])


@pytest.mark.parametrize(("text", "count"), [("one", "1"), ("one two  three\nfour", "4")])
def test_it_uses_the_tool_when_asked_to(server: Server, text: str, count: str) -> None:
    prompt = f"use word_count: {text}"
    reply = say(server, f"tool-{count}", prompt)
    assert prompt in reply
    assert count in reply.replace(prompt, "")


def test_it_says_at_start_that_it_is_offline(server: Server) -> None:
    assert server.address
    assert "offline" in server.log.lower()
    assert json.dumps("test-model") not in server.log
