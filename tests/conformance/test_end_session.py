"""Ending a session: it waits its turn, forgets everything, and asks who is there."""

import threading

import pytest

from tests.conformance.chat import Chat, assert_failed, echoed
from tests.conformance.client import EVENTS, KEY, SESSION
from tests.conformance.conftest import NewChat
from tests.conformance.server import Server
from tests.conformance.steps import Hold

pytestmark = pytest.mark.about("sessions")


def test_an_ended_session_begins_anew(chat: Chat) -> None:
    chat.say("One.")
    reply = chat.end()
    assert (reply.status, reply.content_type) == (200, "application/json")
    assert reply.body == b'{"session_id":"%s","ended":true}' % chat.session.encode()
    assert reply.session == chat.session
    assert chat.say("Two.").turn == 1
    assert chat.recalled() == echoed("Two.")


def test_the_answer_is_json_for_every_accept_header(chat: Chat) -> None:
    assert chat.end(headers=EVENTS).json == {"session_id": chat.session, "ended": True}


def test_a_session_that_nobody_knows_can_be_ended(chat: Chat) -> None:
    assert chat.end().json == {"session_id": chat.session, "ended": True}
    assert chat.end().json == {"session_id": chat.session, "ended": True}


def test_other_sessions_stay(new_chat: NewChat) -> None:
    ada, bob = new_chat(), new_chat()
    ada.say("I am Ada.")
    bob.say("I am Bob.")
    ada.end()
    assert bob.recalled() == echoed("I am Bob.")


def test_the_end_waits_for_the_turns_before_it(chat: Chat, gate: threading.Event) -> None:
    running = chat.start("One.", [Hold(gate), "Done."])
    chat.call("One.")
    end = chat.server.send({"end_session": True}, chat.headers)
    chat.server.settle()
    after = chat.start("Two.")
    chat.server.settle()
    assert not end.answered(within=0)
    gate.set()
    assert running.reply().turn == 1
    assert end.reply().json == {"session_id": chat.session, "ended": True}
    assert after.reply().turn == 1
    assert chat.recalled() == echoed("Two.")


def test_an_end_whose_client_left_does_not_happen(chat: Chat, gate: threading.Event) -> None:
    chat.say("One.")
    running = chat.start("Two.", [Hold(gate), "Done."])
    chat.call("Two.")
    end = chat.server.send({"end_session": True}, chat.headers)
    chat.server.settle()
    end.leave()
    chat.server.settle()
    gate.set()
    assert running.reply().turn == 2
    assert chat.say("Three.").turn == 3


def test_an_end_frees_the_session_for_another_actor(new_chat: NewChat) -> None:
    ada = new_chat(actor="ada")
    ada.say("It is mine.")
    ada.end()
    bob = new_chat(actor="bob", session=ada.session)
    assert bob.say("Now it is mine.").turn == 1
    assert bob.recalled() == echoed("Now it is mine.")


def test_an_end_forgets_the_key(chat: Chat) -> None:
    chat.say("One.", headers={KEY: "key-1"})
    chat.end()
    assert chat.say("Two.", headers={KEY: "key-1"}).text == "You said: Two."


def test_an_end_with_a_prompt_is_refused(chat: Chat) -> None:
    chat.say("One.")
    reply = chat.server.post({"end_session": True, "prompt": "Bye."}, chat.headers)
    assert_failed(reply, 400, "invalid_request", chat.session)
    assert chat.recalled() == echoed("One.")


@pytest.mark.parametrize("value", [False, None, 0, 1, "true", "yes", [], {}])
def test_only_true_ends_a_session(chat: Chat, value: object) -> None:
    chat.say("One.")
    reply = chat.server.post({"end_session": value}, chat.headers)
    assert_failed(reply, 400, "invalid_request", chat.session)
    assert chat.say("Two.").turn == 2


def test_an_end_needs_a_session(server: Server) -> None:
    reply = server.post({"end_session": True})
    assert_failed(reply, 400, "invalid_request", reply.session)


def test_an_end_with_a_bad_session_is_refused(server: Server) -> None:
    reply = server.post({"end_session": True}, {SESSION: "no good"})
    assert_failed(reply, 400, "invalid_session_id", None)


@pytest.mark.parametrize(
    "other",
    [{"at_turn": 1}, {"fork": "other"}, {"fork": "other", "at_turn": 1}, {"replace_turn": 1}],
    ids=str,
)
def test_an_end_that_also_asks_for_something_else_is_refused(
    chat: Chat, other: dict[str, object]
) -> None:
    chat.say("One.")
    reply = chat.post({"end_session": True, **other})
    assert_failed(reply, 400, "invalid_request", chat.session)
    assert chat.recalled() == echoed("One.")


def test_a_prompt_with_the_turn_of_a_fork_is_refused(chat: Chat) -> None:
    chat.say("One.")
    reply = chat.post({"prompt": f"Two.{chat.tag}", "at_turn": 1})
    assert_failed(reply, 400, "invalid_request", chat.session)
    assert chat.recalled() == echoed("One.")
