"""TURN_TIMEOUT_SECONDS: it counts from the lock, and a turn that runs out of it leaves no trace."""

import re
import time

import pytest

from tests.conformance.chat import Chat, assert_done, assert_failed, echoed
from tests.conformance.client import JSON
from tests.conformance.provider import PATIENCE, Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import HANG, Call, Drip, Refuse

pytestmark = pytest.mark.about("turns")


@pytest.fixture
def server(hasty: Server) -> Server:
    return hasty


def test_a_model_that_says_nothing_is_a_status(chat: Chat) -> None:
    assert chat.say("One.").turn == 1
    first = chat.start("Two.", [HANG])
    chat.call("Two.")
    waiter = chat.start("Three.")  # its own second begins when it gets the lock
    assert_failed(first.reply(), 504, "turn_timeout", chat.session)
    chat.gone("Two.")
    assert_done(waiter.reply(), ["You said: ", "Three."], turn=2, session=chat.session)
    assert chat.recalled() == echoed("One.", "Three.")


def test_a_model_that_stops_talking_is_an_event(chat: Chat) -> None:
    count = Call("word_count", {"text": "a b"})
    reply = chat.say("Two.", ["Let me see. ", count], ["Well, ", HANG])
    assert_failed(reply, 504, "turn_timeout", chat.session, after=["Let me see. ", "Well, "])
    chat.gone("Two.")
    assert chat.recalled() == []


def test_a_model_that_talks_too_long_is_an_event(chat: Chat) -> None:
    reply = chat.say("Two.", [Drip(1000, 50)])
    assert 0 < len(reply.chunks) < 1000
    assert_failed(reply, 504, "turn_timeout", chat.session, after=reply.chunks)
    chat.gone("Two.")
    assert chat.recalled() == []


def test_json_has_a_status_also_when_there_was_text(chat: Chat) -> None:
    reply = chat.say("Two.", ["Well, ", HANG], headers=JSON)
    assert_failed(reply, 504, "turn_timeout", chat.session)
    chat.gone("Two.")
    assert chat.recalled() == []


def test_a_turn_that_ends_while_the_client_waits_for_a_busy_provider_says_so(
    fleet: Fleet, provider: Provider
) -> None:
    chat = Chat(fleet.shared(TURN_TIMEOUT_SECONDS=2), provider)
    reply = chat.say("One.", [Refuse(429, after=40)], headers=JSON)
    assert_failed(reply, 504, "turn_timeout", chat.session)
    assert 10 < int(reply.headers["Retry-After"]) <= 40
    deadline = time.monotonic() + PATIENCE
    while f"session {chat.session}: " not in chat.server.log:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (line,) = re.findall(rf"session {chat.session}: (.*)", chat.server.log)
    assert line.endswith("detail=after HTTP 429")
    assert chat.say("Two.").status == 200
