"""replace_turn: a turn and all after it give way to another one, in the commit of that one."""

import json
import threading

import pytest

from tests.conformance.chat import Chat, assert_done, assert_failed, echoed
from tests.conformance.client import JSON, KEY
from tests.conformance.conftest import NewChat
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.steps import CUT, Call, Hold, Refuse, Step
from tests.stores.agents import StoreFleet

pytestmark = pytest.mark.about("sessions")

SAID = ["One.", "Two.", "Three."]
COUNT = Call("word_count", {"text": "a b"})
COUNTED = [("user", "Count."), ("call", "word_count", {"text": "a b"}), ("result", "2")]


@pytest.fixture
def told(chat: Chat) -> Chat:
    """A session of three turns."""
    assert [chat.say(text).turn for text in SAID] == [1, 2, 3]
    return chat


def assert_unchanged(told: Chat) -> None:
    assert told.recalled() == echoed(*SAID)
    assert told.say("And?").turn == 5


@pytest.mark.parametrize("number", [1, 2, 3])
def test_another_prompt_takes_the_place_of_a_turn_and_of_all_after_it(
    told: Chat, number: int
) -> None:
    before = SAID[: number - 1]
    reply = told.replace(number, "Other.")
    assert_done(reply, ["You said: ", "Other."], number, told.session)
    assert told.history(told.calls("Other.")[-1]) == [*echoed(*before), ("user", "Other.")]
    assert told.recalled() == echoed(*before, "Other.")
    assert told.say("And?").turn == number + 2


@pytest.mark.parametrize("number", [1, 2, 3])
def test_without_a_prompt_the_turn_is_repeated(told: Chat, number: int) -> None:
    before, text = SAID[: number - 1], SAID[number - 1]
    told.script(text, ["Now ", "otherwise."])
    reply = told.post({"replace_turn": number}, JSON)
    body = {"session_id": told.session, "turn": number, "model": "test-model"}
    assert reply.json == {**body, "reply": "Now otherwise."}
    assert told.history(told.calls(text)[-1]) == [*echoed(*before), ("user", text)]
    after = [("user", text), ("assistant", "Now otherwise.")]
    assert told.recalled() == [*echoed(*before), *after]


def test_a_turn_is_replaced_again_and_again(told: Chat) -> None:
    for text in ("Two, again.", "Two, once more.", "Two, at last."):
        assert told.replace(2, text).turn == 2
    assert told.recalled() == echoed("One.", "Two, at last.")


def test_a_retry_with_its_key_replays_the_turn_that_replaced(told: Chat) -> None:
    key = {KEY: "key-1", **JSON}
    first = told.replace(2, "Other.", headers=key)
    again = told.replace(2, "Other.", headers=key)
    assert again.json == {"session_id": told.session, "turn": 2, "reply": "You said: Other."}
    assert first.json == {**again.json, "model": "test-model"}
    assert len(told.calls("Other.")) == 1
    assert told.recalled() == echoed("One.", "Other.")


def test_the_key_of_a_turn_that_was_replaced_is_forgotten(chat: Chat) -> None:
    chat.say("One.", headers={KEY: "key-1"})
    chat.replace(1, "Other.")
    assert chat.say("One.", headers={KEY: "key-1"}).turn == 2
    assert chat.recalled() == echoed("Other.", "One.")


@pytest.mark.parametrize(
    ("step", "after"),
    [([Refuse(400)], None), (["Well, ", CUT], ["Well, "]), ([" "], None)],
    ids=["refused", "cut", "blank"],
)
def test_a_replacement_that_fails_changes_nothing(
    told: Chat, step: Step, after: list[str] | None
) -> None:
    reply = told.replace(2, "Other.", step)
    error = "empty_reply" if step == [" "] else "model_failed"
    assert_failed(reply, 502, error, told.session, after)
    assert_unchanged(told)


def test_a_replacement_whose_client_leaves_changes_nothing(
    told: Chat, gate: threading.Event
) -> None:
    told.script("Other.", ["Well, ", Hold(gate)])
    exchange = told.send({"replace_turn": 1, "prompt": f"Other.{told.tag}"})
    assert exchange.event() == ("message", "Well, ")
    exchange.leave()
    told.gone("Other.")
    assert_unchanged(told)


def test_turns_of_other_sessions_are_refused(told: Chat) -> None:
    numbers: list[object] = [0, -1, 4, 1.5, True, "1", None, 2**60, [1], {}]
    for number in numbers:
        for prompt in ({}, {"prompt": f"Other.{told.tag}"}):
            reply = told.post({"replace_turn": number, **prompt})
            assert_failed(reply, 400, "invalid_request", told.session)
            named = "No turn 4: the session holds turns 1 to 3." if number == 4 else "replace_turn"
            assert named in reply.json["error"]["message"]
    assert told.calls("Other.") == []
    assert_unchanged(told)


def test_a_prompt_that_is_none_is_refused(told: Chat) -> None:
    for prompt in ("", " \n", None, 1, "\ud800"):
        body = json.dumps({"replace_turn": 1, "prompt": prompt}).encode()
        assert_failed(told.post(body), 400, "invalid_request", told.session)
    assert_unchanged(told)


def test_a_session_that_nobody_knows_has_no_turn_to_replace(chat: Chat, server: Server) -> None:
    assert_failed(chat.replace(1, "Other."), 400, "invalid_request", chat.session)
    new = server.post({"replace_turn": 1, "prompt": "Other."})
    assert_failed(new, 400, "invalid_request", new.session)
    assert chat.say("One.").turn == 1


def test_another_actor_replaces_nothing(new_chat: NewChat) -> None:
    ada = new_chat(actor="ada")
    ada.say("It is mine.")
    bob = new_chat(actor="bob", session=ada.session)
    assert_failed(bob.replace(1, "Mine."), 403, "session_forbidden", ada.session)
    assert_failed(bob.post({"replace_turn": 1}), 403, "session_forbidden", ada.session)
    assert ada.recalled() == echoed("It is mine.")


def test_a_turn_that_the_session_holds_no_longer_is_named_as_such(
    small: Server, provider: Provider
) -> None:
    chat = Chat(small, provider)
    for text in ("One.", "Two.", "Three.", "Four.", "Five."):
        chat.say(text)
    reply = chat.replace(2, "Other.")
    assert_failed(reply, 400, "invalid_request", chat.session)
    assert "turns 3 to 5" in reply.json["error"]["message"]
    assert chat.replace(4, "Other.").turn == 4
    assert chat.recalled() == echoed("Three.", "Other.")
    assert chat.replace(3, "Oldest.").turn == 3
    assert chat.recalled() == echoed("Oldest.")


def test_the_calls_of_tools_go_and_stay_with_their_turns(chat: Chat) -> None:
    chat.say("One.")
    chat.say("Count.", ["Hm. ", COUNT], ["Two."])
    chat.say("Three.")
    chat.replace(3, "Other.")
    hm = ("assistant", "Hm. ")
    counted = [COUNTED[0], hm, *COUNTED[1:], ("assistant", "Two.")]
    assert chat.recalled() == [*echoed("One."), *counted, *echoed("Other.")]
    chat.script("Count.", [COUNT], [COUNT], ["Still two."])
    assert chat.post({"replace_turn": 2}, JSON).json["reply"] == "Still two."
    counted = [*COUNTED, *COUNTED[1:], ("assistant", "Still two.")]
    assert chat.recalled() == [*echoed("One."), *counted]
    chat.replace(2, "Other.")
    assert chat.recalled() == echoed("One.", "Other.")


def test_a_replacement_waits_for_the_turn_before_it(told: Chat, gate: threading.Event) -> None:
    running = told.start("Four.", [Hold(gate), "Done."])
    told.call("Four.")
    edit = told.send({"replace_turn": 4, "prompt": f"Other.{told.tag}"})
    told.server.settle()
    assert not edit.answered(within=0)
    gate.set()
    assert running.reply().turn == 4
    assert edit.reply().turn == 4
    assert told.recalled() == echoed(*SAID, "Other.")


def test_an_end_after_a_replacement_leaves_nothing(told: Chat, gate: threading.Event) -> None:
    told.script("Other.", [Hold(gate), "Done."])
    edit = told.send({"replace_turn": 1, "prompt": f"Other.{told.tag}"})
    told.call("Other.")
    end = told.send({"end_session": True})
    told.server.settle()
    late = told.send({"replace_turn": 1, "prompt": f"Late.{told.tag}"})
    gate.set()
    assert edit.reply().turn == 1
    assert end.reply().json == {"session_id": told.session, "ended": True}
    assert_failed(late.reply(), 400, "invalid_request", told.session)
    assert told.say("Anew.").turn == 1
    assert told.recalled() == echoed("Anew.")


@pytest.mark.stored
@pytest.mark.parametrize("loses", ["the replacement", "the turn"])
def test_of_a_turn_and_a_replacement_in_two_processes_one_is_kept(
    told: Chat, fleet: StoreFleet, server: Server, loses: str
) -> None:
    beside = told.elsewhere(fleet.beside(server))
    gates = {name: threading.Event() for name in ("Replaced.", "Added.")}
    for name, gate in gates.items():
        told.script(name, [Hold(gate), "Done."])
    edit = beside.send({"replace_turn": 2, "prompt": f"Replaced.{told.tag}"}, JSON)
    turn = told.start("Added.", headers=JSON)
    beside.call("Replaced.")
    told.call("Added.")
    order = ["Added.", "Replaced."] if loses == "the replacement" else ["Replaced.", "Added."]
    exchanges = {"Added.": turn, "Replaced.": edit}
    gates[order[0]].set()
    assert exchanges[order[0]].reply().json["reply"] == "Done."
    gates[order[1]].set()
    assert_failed(exchanges[order[1]].reply(), 409, "session_conflict", told.session)
    kept = SAID if order[0] == "Added." else SAID[:1]
    expected = [*echoed(*kept), ("user", order[0]), ("assistant", "Done.")]
    assert beside.recalled() == expected
    assert told.recalled("And?") == [*expected, *echoed("What do you remember?")]


@pytest.mark.stored
def test_a_session_of_an_older_version_can_be_edited(
    chat: Chat, fleet: StoreFleet, server: Server
) -> None:
    chat.say("One.")
    chat.say("Count.", [COUNT], ["Two."])
    chat.say("Three.")
    store = fleet.home(server).store
    snapshot = store.snapshot(chat.session)
    del snapshot["app_data"]["turns"]
    store.write(chat.session, json.dumps(snapshot).encode())
    chat.script("Count.", ["I do not count."])
    assert chat.post({"replace_turn": 2}, JSON).json["turn"] == 2
    uncounted = [("user", "Count."), ("assistant", "I do not count.")]
    assert chat.recalled() == [*echoed("One."), *uncounted]
    assert chat.replace(1, "Other.").turn == 1
    assert chat.recalled() == echoed("Other.")
