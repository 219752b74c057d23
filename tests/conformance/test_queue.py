"""Turns at once: one after the other in a session, and sessions beside each other."""

import itertools
import math
import threading

import pytest

from tests.conformance.chat import Chat, assert_done, assert_failed, echoed
from tests.conformance.conftest import NewChat
from tests.conformance.provider import ModelCall, Provider
from tests.conformance.server import Server
from tests.conformance.steps import Hold

pytestmark = pytest.mark.about("the server")

QUEUE = 8  # the default of SESSION_QUEUE


def overlap(calls: list[ModelCall]) -> bool:
    """Whether two of these calls ran at the same time."""
    spans = sorted((call.began, call.ended or math.inf) for call in calls)
    return any(one[1] > other[0] for one, other in itertools.pairwise(spans))


def test_turns_of_one_session_run_in_the_order_of_arrival(
    chat: Chat, gate: threading.Event
) -> None:
    exchanges = [chat.start("Turn 0.", [Hold(gate), "Done."])]
    chat.call("Turn 0.")
    for number in range(1, QUEUE + 1):
        exchanges.append(chat.start(f"Turn {number}."))
        chat.server.settle()
    gate.set()
    assert [exchange.reply().turn for exchange in exchanges] == list(range(1, QUEUE + 2))
    texts = [f"Turn {number}." for number in range(1, QUEUE + 1)]
    assert chat.recalled() == [("user", "Turn 0."), ("assistant", "Done."), *echoed(*texts)]


def test_sessions_do_not_wait_for_each_other(new_chat: NewChat, gate: threading.Event) -> None:
    slow, quick = new_chat(), new_chat()
    exchange = slow.start("One.", [Hold(gate), "Done."])
    slow.call("One.")
    assert quick.say("One.").turn == 1
    gate.set()
    assert exchange.reply().turn == 1


def test_simultaneous_first_turns_of_a_new_session_share_it(chat: Chat) -> None:
    one, two = chat.start("One."), chat.start("Two.")
    turns = {"One.": one.reply().turn, "Two.": two.reply().turn}
    assert sorted(turns.values()) == [1, 2]
    assert not overlap(chat.calls("One.") + chat.calls("Two."))
    assert chat.recalled() == echoed(*sorted(turns, key=lambda text: turns[text]))


def test_a_full_queue_is_refused_and_nothing_else(new_chat: NewChat, gate: threading.Event) -> None:
    chat, other = new_chat(), new_chat()
    waiting = [chat.start("Turn 0.", [Hold(gate), "Done."])]
    chat.call("Turn 0.")
    for number in range(1, QUEUE + 1):
        waiting.append(chat.start(f"Turn {number}."))
        chat.server.settle()
    assert_failed(chat.say("One too many."), 429, "session_busy", chat.session)
    assert_failed(chat.end(), 429, "session_busy", chat.session)
    assert other.say("I have a queue of my own.").turn == 1
    gate.set()
    assert [exchange.reply().turn for exchange in waiting] == list(range(1, QUEUE + 2))
    assert chat.calls("One too many.") == []
    assert chat.say("Now there is room.").turn == QUEUE + 2


def test_another_actor_gets_no_place_in_the_queue(new_chat: NewChat, gate: threading.Event) -> None:
    ada = new_chat(actor="ada")
    ada.say("It is mine.")
    running = ada.start("One.", [Hold(gate), "Done."])
    ada.call("One.")
    for bob in [new_chat(actor="bob", session=ada.session) for _ in range(QUEUE + 1)]:
        for exchange in (bob.start("Mine!"), bob.server.send({"end_session": True}, bob.headers)):
            assert exchange.answered(within=5), "it waits for the turn of another actor"
            assert_failed(exchange.reply(), 403, "session_forbidden", ada.session)
    waiting = ada.start("Two.")
    ada.server.settle()
    gate.set()
    assert [exchange.reply().turn for exchange in (running, waiting)] == [2, 3]


def test_a_waiter_that_leaves_frees_its_place(chat: Chat, gate: threading.Event) -> None:
    first = chat.start("Turn 0.", [Hold(gate), "Done."])
    chat.call("Turn 0.")
    waiting = [chat.start(f"Turn {number}.") for number in range(1, QUEUE + 1)]
    chat.server.settle()
    assert chat.say("Too early.").error == "session_busy"
    waiting.pop(2).leave()
    for _ in range(100):  # until the server has noticed
        late = chat.start("In its place.")
        if not late.answered(within=0.05):
            break
    gate.set()
    turns = [exchange.reply().turn for exchange in [first, *waiting, late]]
    assert sorted(turns) == list(range(1, QUEUE + 2))
    assert turns[-1] == QUEUE + 1
    assert chat.calls("Turn 3.") == []


def test_twenty_turns_at_once_over_two_sessions(crowded: Server, provider: Provider) -> None:
    chats = [Chat(crowded, provider), Chat(crowded, provider)]
    texts = [f"Turn {number}." for number in range(10)]
    sent = [(chat, text, chat.start(text)) for text in texts for chat in chats]
    replies = [(chat, text, exchange.reply()) for chat, text, exchange in sent]
    for chat in chats:
        mine = {text: reply for who, text, reply in replies if who is chat}
        assert sorted(reply.turn for reply in mine.values()) == list(range(1, 11))
        in_order = sorted(mine, key=lambda text: mine[text].turn)
        for turn, text in enumerate(in_order, 1):
            assert_done(mine[text], ["You said: ", text], turn, chat.session)
            (call,) = chat.calls(text)
            assert chat.history(call) == [*echoed(*in_order[: turn - 1]), ("user", text)]
        assert not overlap([chat.calls(text)[0] for text in texts])
        assert chat.recalled() == echoed(*in_order)
