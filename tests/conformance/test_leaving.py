"""A client that leaves, and one that stays but does not read."""

import threading

import pytest

from tests.conformance.chat import Chat, echoed
from tests.conformance.client import JSON, Exchange
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.steps import HANG, Call, Drip, Flood, Hold, Step

COUNT = Call("word_count", {"text": "a b"})


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([["Well, ", HANG]], id="then the model is silent"),
        pytest.param([["Well, ", Drip(10_000, 5)]], id="while text flows"),
        pytest.param([["Well, ", COUNT], [HANG]], id="after a tool call"),
    ],
)
def test_a_client_that_leaves_in_mid_stream(chat: Chat, steps: list[Step]) -> None:
    chat.say("One.")
    exchange = chat.start("Two.", *steps)
    assert exchange.event() == ("message", "Well, ")
    chat.call("Two.", len(steps))
    exchange.leave()
    chat.gone("Two.")
    assert chat.recalled("Three.") == echoed("One.")


@pytest.mark.parametrize("accept", [{}, JSON], ids=["events", "json"])
@pytest.mark.parametrize(
    "step", [[HANG], [" ", HANG]], ids=["before a byte", "after a blank chunk"]
)
def test_a_client_that_leaves_while_the_model_is_silent(
    chat: Chat, step: Step, accept: dict[str, str]
) -> None:
    chat.say("One.")
    exchange = chat.start("Two.", step, headers=accept)
    chat.call("Two.")
    exchange.leave()
    chat.gone("Two.")
    assert chat.recalled("Three.") == echoed("One.")


def test_a_client_of_json_that_leaves_while_text_flows(chat: Chat) -> None:
    exchange = chat.start("Two.", ["Well, ", Drip(10_000, 5)], headers=JSON)
    chat.call("Two.")
    exchange.leave()
    chat.gone("Two.")
    assert chat.recalled("Three.") == []


def test_who_waits_behind_a_client_that_leaves_comes_next(chat: Chat) -> None:
    leaver = chat.start("One.", [HANG])
    chat.call("One.")
    waiter = chat.start("Two.")
    chat.server.settle()
    leaver.leave()
    assert waiter.reply().turn == 1
    assert chat.recalled() == echoed("Two.")


def test_a_waiter_that_leaves_never_reaches_the_model(chat: Chat, gate: threading.Event) -> None:
    first = chat.start("One.", [Hold(gate), "Done."])
    chat.call("One.")
    leaver, stayer = chat.start("Two."), chat.start("Three.")
    chat.server.settle()
    leaver.leave()
    chat.server.settle()
    gate.set()
    assert (first.reply().turn, stayer.reply().turn) == (1, 2)
    assert chat.calls("Two.") == []
    assert chat.recalled() == [("user", "One."), ("assistant", "Done."), *echoed("Three.")]


@pytest.mark.slow
def test_a_client_that_does_not_read_runs_into_the_turn_timeout(
    hasty: Server, provider: Provider
) -> None:
    chat = Chat(hasty, provider)
    chat.say("One.")
    flood = Flood(count=20_000, size=16_384)  # 320 MB, far more than any buffer on the way
    message = {"prompt": "Two." + chat.tag}
    provider.script(message["prompt"], ["Well, ", flood])
    sleeper = hasty.send(message, chat.headers, receive_buffer=4096)
    call = chat.call("Two.")
    assert chat.recalled("Three.") == echoed("One.")  # the lock is free, nothing is committed
    chat.gone("Two.")
    assert call.chunks < flood.count / 4, "the model was read though the client was not"
    assert b"event: done" not in _rest(sleeper)


def _rest(exchange: Exchange) -> bytes:
    """What a client finds that wakes up later: perhaps only a closed connection."""
    try:
        return exchange.reply().body[-1000:]
    except OSError:
        return b""
