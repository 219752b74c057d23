"""How long a session is kept, and whose it is. What a process forgets, a store still has."""

import threading
import time

import pytest

from tests.conformance.chat import Chat, assert_failed, echoed
from tests.conformance.client import ACTOR, KEY, SESSION, USER
from tests.conformance.conftest import NewChat
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import CUT, Hold
from tests.conformance.targets import Target

pytestmark = pytest.mark.about("sessions")


def test_more_sessions_than_there_is_room_for(
    target: Target, crowded: Server, provider: Provider
) -> None:
    ada, bob, cyd = (Chat(crowded, provider) for _ in range(3))
    for chat, name in ((ada, "Ada"), (bob, "Bob"), (cyd, "Cyd")):
        chat.say(f"I am {name}.")
    assert cyd.recalled() == echoed("I am Cyd.")
    assert bob.recalled() == echoed("I am Bob.")
    assert ada.recalled() == (echoed("I am Ada.") if target.store else [])


def test_the_session_that_was_used_last_is_kept(
    target: Target, crowded: Server, provider: Provider
) -> None:
    ada, bob, cyd = (Chat(crowded, provider) for _ in range(3))
    ada.say("I am Ada.")
    bob.say("I am Bob.")
    ada.say("I like tea.")
    cyd.say("I am Cyd.")
    assert ada.recalled() == echoed("I am Ada.", "I like tea.")
    assert bob.say("Who am I?").turn == (2 if target.store else 1)


def test_a_replay_uses_a_session(target: Target, crowded: Server, provider: Provider) -> None:
    ada, bob, cyd = (Chat(crowded, provider) for _ in range(3))
    ada.say("I am Ada.", headers={KEY: "key-1"})
    bob.say("I am Bob.")
    ada.say("I am Ada.", headers={KEY: "key-1"})
    cyd.say("I am Cyd.")
    assert ada.recalled() == echoed("I am Ada.")
    assert bob.say("Who am I?").turn == (2 if target.store else 1)


def test_the_key_of_a_session_that_was_pushed_out(
    target: Target, crowded: Server, provider: Provider
) -> None:
    ada, bob, cyd = (Chat(crowded, provider) for _ in range(3))
    ada.say("I am Ada.", headers={KEY: "key-1"})
    bob.say("I am Bob.")
    cyd.say("I am Cyd.")
    assert ada.say("I am Ada.", headers={KEY: "key-1"}).turn == 1
    assert len(ada.calls("I am Ada.")) == (1 if target.store else 2)


def test_a_failed_turn_does_not_push_a_session_out(crowded: Server, provider: Provider) -> None:
    ada, bob, cyd = (Chat(crowded, provider) for _ in range(3))
    ada.say("I am Ada.")
    bob.say("I am Bob.")
    cyd.say("I am Cyd.", ["Well, ", CUT])
    assert ada.recalled() == echoed("I am Ada.")
    assert bob.recalled() == echoed("I am Bob.")
    assert cyd.recalled() == []


def test_a_session_evicted_in_mid_turn_commits_all_of_it(
    crowded: Server, provider: Provider, gate: threading.Event
) -> None:
    ada, bob, cyd = (Chat(crowded, provider) for _ in range(3))
    ada.say("I am Ada.")
    running = ada.start("I like tea.", [Hold(gate), "So do I."])
    ada.call("I like tea.")
    bob.say("I am Bob.")
    cyd.say("I am Cyd.")
    waiting = ada.start("And cake.")
    crowded.settle()
    assert ada.calls("And cake.") == [], "two turns of one session at once"
    gate.set()
    assert (running.reply().turn, waiting.reply().turn) == (2, 3)
    tea = [("user", "I like tea."), ("assistant", "So do I.")]
    assert ada.recalled() == [*echoed("I am Ada."), *tea, *echoed("And cake.")]


@pytest.mark.slow
def test_an_idle_session_is_forgotten(target: Target, fleet: Fleet, provider: Provider) -> None:
    chat = Chat(fleet.shared(SESSION_IDLE_SECONDS=1), provider)
    chat.say("I am Ada.")
    time.sleep(1.1)
    assert chat.recalled() == (echoed("I am Ada.") if target.store else [])


@pytest.mark.slow
def test_a_turn_longer_than_the_idle_time_commits_all_of_it(
    fleet: Fleet, provider: Provider, gate: threading.Event
) -> None:
    chat = Chat(fleet.shared(SESSION_IDLE_SECONDS=1), provider)
    chat.say("I am Ada.")
    running = chat.start("I like tea.", [Hold(gate), "So do I."])
    chat.call("I like tea.")
    time.sleep(1.1)
    gate.set()
    assert running.reply().turn == 2
    tea = [("user", "I like tea."), ("assistant", "So do I.")]
    assert chat.recalled() == [*echoed("I am Ada."), *tea]


@pytest.mark.parametrize(
    ("owner", "stranger"), [("ada", "bob"), ("ada", None), (None, "bob"), ("ada", "Ada")]
)
def test_a_session_belongs_to_the_actor_of_its_first_turn(
    new_chat: NewChat, owner: str | None, stranger: str | None
) -> None:
    chat = new_chat(actor=owner)
    chat.say("It is mine.")
    intruder = new_chat(actor=stranger, session=chat.session)
    assert_failed(intruder.say("Now it is mine."), 403, "session_forbidden", chat.session)
    assert_failed(intruder.end(), 403, "session_forbidden", chat.session)
    assert intruder.calls("Now it is mine.") == []
    assert chat.recalled() == echoed("It is mine.")


def test_a_failed_turn_owns_nothing(new_chat: NewChat) -> None:
    ada = new_chat(actor="ada")
    ada.say("It is mine.", ["Well, ", CUT])
    bob = new_chat(actor="bob", session=ada.session)
    assert bob.say("It is mine.").turn == 1
    assert_failed(ada.say("Is it mine?"), 403, "session_forbidden", ada.session)


def test_another_actor_is_refused_after_the_first_turn(
    new_chat: NewChat, gate: threading.Event
) -> None:
    ada = new_chat(actor="ada")
    first = ada.start("It is mine.", [Hold(gate), "Yes."])
    ada.call("It is mine.")
    bob = new_chat(actor="bob", session=ada.session)
    waiter = bob.start("It is mine.")
    ada.server.settle()
    assert not waiter.answered(within=0), "the owner is known when the first turn is over"
    gate.set()
    assert first.reply().turn == 1
    assert_failed(waiter.reply(), 403, "session_forbidden", ada.session)
    assert bob.calls("It is mine.") == []


def test_the_runtimes_own_header_names_the_actor_first(server: Server) -> None:
    session = {SESSION: "session-of-an-actor-with-two-headers"}
    both = {**session, USER: "ada", ACTOR: "bob"}
    assert server.post({"prompt": "Hello."}, both).status == 200
    assert server.post({"prompt": "Hello."}, {**session, USER: "ada"}).status == 200
    assert server.post({"prompt": "Hello."}, {**session, ACTOR: "ada"}).status == 200
    assert server.post({"prompt": "Hello."}, {**session, ACTOR: "bob"}).error == "session_forbidden"


def test_spaces_around_the_value_of_a_header_are_no_part_of_it(server: Server) -> None:
    session = {SESSION: "session-of-an-actor-with-spaces-around"}
    assert server.post({"prompt": "Hello."}, {**session, USER: "ada"}).turn == 1
    padded = {SESSION: f"\t {session[SESSION]} \t", USER: " ada  "}
    reply = server.post({"prompt": "Hello."}, padded)
    assert (reply.turn, reply.session) == (2, session[SESSION])
