"""tests/conformance/test_sessions.py, with a store: what a process forgets, the store knows."""

import time

from tests.conformance.chat import Chat, echoed
from tests.conformance.client import KEY
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import CUT
from tests.conformance.test_sessions import (  # noqa: F401 (which hold with a store, too)
    test_a_failed_turn_owns_nothing,
    test_a_session_belongs_to_the_actor_of_its_first_turn,
    test_a_session_evicted_in_mid_turn_commits_all_of_it,
    test_a_turn_longer_than_the_idle_time_commits_all_of_it,
    test_the_runtimes_own_header_names_the_actor_first,
    test_who_waits_for_another_actors_first_turn_is_refused_after_it,
)


def test_more_sessions_than_there_is_room_for(crowded: Server, provider: Provider) -> None:
    ada, bob, cyd = (Chat(crowded, provider) for _ in range(3))
    for chat, name in ((ada, "Ada"), (bob, "Bob"), (cyd, "Cyd")):
        chat.say(f"I am {name}.")
    assert cyd.recalled() == echoed("I am Cyd.")
    assert bob.recalled() == echoed("I am Bob.")
    assert ada.recalled() == echoed("I am Ada.")


def test_the_session_that_was_used_last_is_kept(crowded: Server, provider: Provider) -> None:
    ada, bob, cyd = (Chat(crowded, provider) for _ in range(3))
    ada.say("I am Ada.")
    bob.say("I am Bob.")
    ada.say("I like tea.")
    cyd.say("I am Cyd.")
    assert ada.recalled() == echoed("I am Ada.", "I like tea.")
    assert bob.say("Who am I?").turn == 2


def test_a_replay_uses_a_session(crowded: Server, provider: Provider) -> None:
    ada, bob, cyd = (Chat(crowded, provider) for _ in range(3))
    ada.say("I am Ada.", headers={KEY: "key-1"})
    bob.say("I am Bob.")
    cyd.say("I am Cyd.")
    assert ada.say("I am Ada.", headers={KEY: "key-1"}).turn == 1
    assert len(ada.calls("I am Ada.")) == 1, "the key is stored, too"
    assert bob.say("Who am I?").turn == 2


def test_a_failed_turn_does_not_push_a_session_out(crowded: Server, provider: Provider) -> None:
    ada, bob, cyd = (Chat(crowded, provider) for _ in range(3))
    ada.say("I am Ada.")
    bob.say("I am Bob.")
    cyd.say("I am Cyd.", ["Well, ", CUT])
    assert ada.recalled() == echoed("I am Ada.")
    assert bob.recalled() == echoed("I am Bob.")
    assert cyd.recalled() == []


def test_an_idle_session_is_forgotten(fleet: Fleet, provider: Provider) -> None:
    """By the process, and not by the store."""
    chat = Chat(fleet.shared(SESSION_IDLE_SECONDS=1), provider)
    chat.say("I am Ada.")
    time.sleep(1.3)
    assert chat.say("Who am I?").turn == 2
