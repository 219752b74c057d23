"""A client that leaves, and one that stays but does not read."""

import threading
import time

import pytest

from tests.conformance.chat import Chat, echoed
from tests.conformance.client import JSON, Exchange
from tests.conformance.provider import PATIENCE, Provider
from tests.conformance.server import Server
from tests.conformance.steps import HANG, Call, Drip, Flood, Hold, Step

pytestmark = pytest.mark.about("turns")

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


def test_the_next_in_line_follows_a_client_that_leaves(chat: Chat) -> None:
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


# Far more than all buffers on the way to a client together.
FLOOD = Flood(count=100_000, size=262_144)


def start_and_do_not_read(chat: Chat, text: str) -> Exchange:
    prompt = text + chat.tag
    chat.provider.script(prompt, ["Well, ", FLOOD])
    return chat.server.send({"prompt": prompt}, chat.headers, receive_buffer=4096)


def test_the_model_is_read_no_faster_than_its_reader_reads(
    generous: Server, provider: Provider
) -> None:
    chat = Chat(generous, provider)
    chat.say("One.")
    sleeper = start_and_do_not_read(chat, "Two.")
    call = chat.call("Two.")
    deadline, chunks = time.monotonic() + PATIENCE, -1
    while call.chunks != chunks:  # until half a second brings nothing more
        assert time.monotonic() < deadline, f"{call.chunks} chunks are read, and still more"
        chunks = call.chunks
        time.sleep(0.5)
    assert call.outcome == "running"
    sleeper.leave()
    chat.gone("Two.")
    assert chat.recalled("Three.") == echoed("One.")


@pytest.mark.slow
def test_a_client_that_does_not_read_runs_into_the_turn_timeout(
    hasty: Server, provider: Provider
) -> None:
    chat = Chat(hasty, provider)
    chat.say("One.")
    sleeper = start_and_do_not_read(chat, "Two.")
    chat.call("Two.")
    assert chat.recalled("Three.") == echoed("One.")  # the lock is free, nothing is committed
    chat.gone("Two.")
    assert b"event: done" not in what_is_left(sleeper)


def what_is_left(exchange: Exchange) -> bytes:
    """What a client finds that wakes up later: perhaps only a closed connection."""
    try:
        return exchange.reply().body[-1000:]
    except OSError:
        return b""
