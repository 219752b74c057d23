"""Replicas on one store: a session is one session, wherever its turns run."""

import signal
import threading

import pytest

from tests.conformance.chat import Chat, assert_done, assert_failed, echoed
from tests.conformance.client import JSON
from tests.conformance.provider import Provider
from tests.conformance.steps import Hold
from tests.stores.agents import Agents, Replica, on


@pytest.mark.one_each
def test_a_restart_resumes_the_session(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    first = agents.fresh(home)
    chat = Chat(first.server, provider)
    assert [chat.say(text).turn for text in ("One.", "Two.")] == [1, 2]
    first.server.signal()
    assert first.server.exit_code() == 0
    chat = on(agents.fresh(home).server, chat)
    assert_done(chat.say("Three."), ["You said: ", "Three."], turn=3, session=chat.session)
    assert chat.recalled() == echoed("One.", "Two.", "Three.")
    assert home.store.turns(chat.session) == 4


@pytest.mark.spread
def test_twenty_turns_that_alternate_are_twenty_turns(chat: Chat, beside: Chat) -> None:
    texts = [f"Turn {number}." for number in range(20)]
    replies = [(chat, beside)[number % 2].say(text) for number, text in enumerate(texts)]
    assert [(reply.status, reply.turn) for reply in replies] == [(200, n) for n in range(1, 21)]
    assert chat.recalled() == echoed(*texts)
    last = echoed(*texts[11:], "What do you remember?")
    assert beside.recalled("And you?") == last, "42 messages are cut to 20"


@pytest.mark.spread
def test_of_two_turns_at_once_one_wins_and_the_other_is_told(
    chat: Chat, beside: Chat, one: Replica
) -> None:
    chat.say("One.")
    gates = {name: threading.Event() for name in ("wins", "loses")}
    loser = chat.start("Loses.", [Hold(gates["loses"]), "Lost."], headers=JSON)
    winner = beside.start("Wins.", [Hold(gates["wins"]), "Won."], headers=JSON)
    chat.call("Loses.")
    beside.call("Wins.")
    gates["wins"].set()
    assert winner.reply().json["turn"] == 2
    gates["loses"].set()
    assert_failed(loser.reply(), 409, "session_conflict", chat.session)
    assert one.home.store.turns(chat.session) == 2
    won = [*echoed("One."), ("user", "Wins."), ("assistant", "Won.")]
    assert chat.recalled("Three.") == won
    assert beside.recalled("Four.") == [*won, *echoed("Three.")]


@pytest.mark.spread
def test_of_two_first_turns_at_once_one_wins(chat: Chat, beside: Chat) -> None:
    gates = [threading.Event(), threading.Event()]
    sent = [
        who.start(f"Turn {number}.", [Hold(gate), "Done."], headers=JSON)
        for number, (who, gate) in enumerate(zip((chat, beside), gates, strict=True))
    ]
    for number, who in enumerate((chat, beside)):
        who.call(f"Turn {number}.")
    for gate in gates:
        gate.set()
    replies = [exchange.reply() for exchange in sent]
    assert sorted(reply.status for reply in replies) == [200, 409]
    (winner,) = (number for number, reply in enumerate(replies) if reply.status == 200)
    assert_failed(replies[1 - winner], 409, "session_conflict", chat.session)
    assert chat.recalled() == [("user", f"Turn {winner}."), ("assistant", "Done.")]


@pytest.mark.spread
def test_a_conflict_in_mid_stream_is_an_event(chat: Chat, beside: Chat) -> None:
    gate = threading.Event()
    loser = chat.start("Loses.", ["Well, ", Hold(gate), "lost."])
    assert loser.event() == ("message", "Well, ")
    assert beside.say("Wins.").turn == 1
    gate.set()
    assert [loser.event()[0], loser.event()[0]] == ["message", "error"]
    loser.leave()
    assert chat.recalled() == echoed("Wins.")


@pytest.mark.spread
def test_a_replica_that_was_frozen_is_refused_when_it_thaws(
    chat: Chat, beside: Chat, one: Replica, gate: threading.Event
) -> None:
    chat.say("One.")
    frozen = chat.start("Frozen.", [Hold(gate), "I slept."], headers=JSON)
    chat.call("Frozen.")
    one.server.signal(signal.SIGSTOP)
    try:
        gate.set()
        assert beside.say("Two.").turn == 2
        assert beside.say("Three.").turn == 3
    finally:
        one.server.signal(signal.SIGCONT)
    assert_failed(frozen.reply(), 409, "session_conflict", chat.session)
    assert chat.recalled("Four.") == echoed("One.", "Two.", "Three.")
    assert beside.recalled() == echoed("One.", "Two.", "Three.", "Four.")


@pytest.mark.spread
def test_an_end_is_not_undone_by_a_turn_that_runs_elsewhere(
    chat: Chat, beside: Chat, one: Replica, gate: threading.Event
) -> None:
    chat.say("One.")
    running = chat.start("Two.", [Hold(gate), "Too late."], headers=JSON)
    chat.call("Two.")
    assert beside.end().json == {"session_id": chat.session, "ended": True}
    gate.set()
    assert_failed(running.reply(), 409, "session_conflict", chat.session)
    assert one.home.store.snapshot(chat.session) is None
    assert chat.say("Three.").turn == 1
    assert beside.recalled() == echoed("Three.")


@pytest.mark.spread
def test_an_end_is_heard_by_every_replica(chat: Chat, beside: Chat, one: Replica) -> None:
    chat.say("One.")
    beside.say("Two.")
    chat.end()
    assert one.home.store.snapshot(chat.session) is None
    assert beside.recalled() == []
    assert chat.recalled("Again.") == echoed("What do you remember?")


@pytest.mark.spread
def test_an_owner_is_known_to_every_replica(one: Replica, two: Replica, provider: Provider) -> None:
    ada = Chat(one.server, provider, actor="ada")
    ada.say("It is mine.")
    bob = Chat(two.server, provider, session=ada.session, actor="bob")
    assert_failed(bob.say("It is mine."), 403, "session_forbidden", ada.session)
    assert_failed(bob.end(), 403, "session_forbidden", ada.session)
    assert bob.calls("It is mine.") == []
    assert on(two.server, ada).recalled() == echoed("It is mine.")
