"""A client that is not sure can always send a turn again: its key replays the reply."""

import threading

import pytest

from tests.conformance.chat import Chat, assert_done, assert_failed, echoed
from tests.conformance.client import CUSTOM_KEY, JSON, KEY
from tests.conformance.conftest import NewChat
from tests.conformance.server import Server
from tests.conformance.steps import CUT, Call, Hold

pytestmark = pytest.mark.about("sessions")

COUNT = Call("word_count", {"text": "a b"})


@pytest.mark.parametrize("header", [KEY, CUSTOM_KEY])
def test_the_last_turns_key_replays_its_reply(chat: Chat, header: str) -> None:
    key = {header: "key-1"}
    chat.say("One.")
    first = chat.say("Two.", ["Let me see. ", COUNT], ["Two", "."], headers=key)
    again = chat.say("Two.", headers=key)
    assert first.turn == 2
    assert_done(again, ["Let me see. Two."], turn=2, session=chat.session, model="")
    assert len(chat.calls("Two.")) == 2  # of the first time
    assert chat.recalled()[:3] == [*echoed("One."), ("user", "Two.")]


def test_either_header_carries_the_same_key(chat: Chat) -> None:
    chat.say("One.", headers={KEY: "key-1"})
    assert chat.say("One.", headers={CUSTOM_KEY: "key-1"}).turn == 1
    assert len(chat.calls("One.")) == 1


def test_a_replay_is_json_when_json_is_asked_for(chat: Chat) -> None:
    chat.say("One.", headers={KEY: "key-1"})
    again = chat.say("One.", headers={KEY: "key-1", **JSON})
    assert again.json == {"session_id": chat.session, "turn": 1, "reply": "You said: One."}


def test_a_replay_does_not_look_at_the_prompt(chat: Chat) -> None:
    chat.say("One.", headers={KEY: "key-1"})
    assert_done(chat.say("Two.", headers={KEY: "key-1"}), ["You said: One."], 1, chat.session, "")
    assert chat.calls("Two.") == []
    assert chat.recalled() == echoed("One.")


def test_another_key_is_another_turn(chat: Chat) -> None:
    chat.say("One.", headers={KEY: "key-1"})
    assert chat.say("One.", headers={KEY: "key-2"}).turn == 2
    assert chat.recalled() == echoed("One.", "One.")


def test_the_key_of_each_turn_that_the_session_holds_replays_its_reply(chat: Chat) -> None:
    first = chat.say("One.", ["Let me see. ", COUNT], ["Two", "."], headers={KEY: "key-1"})
    chat.say("Two.", headers={KEY: "key-2"})
    chat.say("Three.")
    again = chat.say("One.", headers={KEY: "key-1"})
    assert_done(again, ["Let me see. Two."], 1, chat.session, "")
    again = chat.say("Two.", headers={KEY: "key-2", **JSON})
    assert again.json == {"session_id": chat.session, "turn": 2, "reply": "You said: Two."}
    assert first.turn == 1
    assert (len(chat.calls("One.")), len(chat.calls("Two."))) == (2, 1)
    assert chat.say("Four.").turn == 4


def test_a_replacement_is_not_repeated_when_another_turn_has_followed(chat: Chat) -> None:
    chat.say("One.")
    assert chat.replace(1, "First.", headers={KEY: "key-1"}).turn == 1
    chat.say("Two.")
    again = chat.replace(1, "First.", headers={KEY: "key-1"})
    assert_done(again, ["You said: First."], 1, chat.session, "")
    assert chat.recalled() == echoed("First.", "Two.")


def test_a_replacement_of_another_turn_runs(chat: Chat) -> None:
    chat.say("One.", headers={KEY: "key-1"})
    chat.say("Two.")
    chat.say("Three.")
    assert chat.replace(2, "Second.", headers={KEY: "key-1"}).turn == 2
    assert chat.recalled() == echoed("One.", "Second.")


def test_the_key_of_a_turn_that_was_replaced_runs_again(chat: Chat) -> None:
    chat.say("One.", headers={KEY: "key-1"})
    chat.replace(1, "First.")
    assert chat.say("One.", headers={KEY: "key-1"}).turn == 2
    assert len(chat.calls("One.")) == 2


def test_the_key_of_a_failed_turn_runs_again(chat: Chat) -> None:
    chat.say("One.", ["Well, ", CUT], headers={KEY: "key-1"})
    assert_done(chat.say("One.", headers={KEY: "key-1"}), ["You said: ", "One."], 1, chat.session)
    assert len(chat.calls("One.")) == 2


def test_a_failed_turn_does_not_take_the_key_of_the_last_one(chat: Chat) -> None:
    chat.say("One.", headers={KEY: "key-1"})
    chat.say("Two.", ["Well, ", CUT], headers={KEY: "key-2"})
    again = chat.say("One.", headers={KEY: "key-1"})
    assert_done(again, ["You said: One."], 1, chat.session, "")


def test_a_client_that_lost_its_connection_sends_again(chat: Chat, gate: threading.Event) -> None:
    exchange = chat.start("One.", ["Well, ", Hold(gate)], headers={KEY: "key-1"})
    assert exchange.event() == ("message", "Well, ")
    exchange.leave()
    assert chat.say("One.", headers={KEY: "key-1"}).turn == 1
    assert chat.recalled() == echoed("One.")


def test_the_same_turn_sent_twice_at_once_runs_once(chat: Chat, gate: threading.Event) -> None:
    one = chat.start("One.", ["Well", Hold(gate), "."], headers={KEY: "key-1"})
    chat.call("One.")
    two = chat.start("One.", headers={KEY: "key-1"})
    chat.server.settle()
    assert not two.answered(within=0), "a replay waits its turn, too"
    gate.set()
    assert_done(one.reply(), ["Well", "."], 1, chat.session)
    assert_done(two.reply(), ["Well."], 1, chat.session, "")
    assert len(chat.calls("One.")) == 1


def test_a_key_belongs_to_its_session(new_chat: NewChat) -> None:
    ada, bob = new_chat(), new_chat()
    ada.say("I am Ada.", headers={KEY: "key-1"})
    assert bob.say("I am Bob.", headers={KEY: "key-1"}).text == "You said: I am Bob."


def test_a_key_does_not_open_another_actors_session(new_chat: NewChat) -> None:
    ada = new_chat(actor="ada")
    ada.say("It is mine.", headers={KEY: "key-1"})
    bob = new_chat(actor="bob", session=ada.session)
    reply = bob.say("It is mine.", headers={KEY: "key-1"})
    assert_failed(reply, 403, "session_forbidden", ada.session)


@pytest.mark.parametrize("key", ["k", "!~" * 64], ids=["one character", "128 characters"])
def test_a_key_is_visible_ascii(chat: Chat, key: str) -> None:
    chat.say("One.", headers={KEY: key})
    assert chat.say("One.", headers={KEY: key}).turn == 1
    assert len(chat.calls("One.")) == 1


@pytest.mark.parametrize(
    "key",
    ["", "k" * 129, "a b", "a\tb", "schl\u00fcssel"],
    ids=["empty", "long", "space", "tab", "latin"],
)
@pytest.mark.parametrize("header", [KEY, CUSTOM_KEY])
def test_any_other_key_is_refused(chat: Chat, header: str, key: str) -> None:
    assert_failed(chat.say("One.", headers={header: key}), 400, "invalid_request", chat.session)
    assert chat.calls("One.") == []


def test_a_key_needs_a_session(server: Server) -> None:
    reply = server.post({"prompt": "One."}, {KEY: "key-1"})
    assert_failed(reply, 400, "invalid_request", reply.session)
    assert reply.session
