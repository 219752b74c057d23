"""What a model sends and what a process keeps are bounded in bytes."""

import json
import time
from pathlib import Path

import pytest

from tests.conformance.chat import Chat, assert_failed
from tests.conformance.client import JSON, Reply
from tests.conformance.conftest import NewChat
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import HANG, Call, Step, Think

pytestmark = pytest.mark.about("turns")

MEGABYTE = 2**20
MOST_MEGABYTES = 400  # of the process; it took more than 1,000
TEXT = "x" * 3000
COUNT = Call("word_count", {"text": TEXT})


@pytest.fixture
def server(fleet: Fleet) -> Server:
    return fleet.shared(MAX_REPLY_BYTES=5000, MAX_SNAPSHOT_BYTES=16_384)


@pytest.mark.parametrize(
    "steps",
    [
        [[TEXT, TEXT]],
        [[Call("word_count", {"text": 2 * TEXT})], ["Two."]],
        [[Call("word_count", raw=2 * TEXT)], ["Not JSON."]],
        [[COUNT, COUNT], ["Two words."]],
        [[COUNT], [TEXT]],
        [["\u00e9" * 2600]],
        [[Think(TEXT), Think(TEXT), "Done."]],
        [[Call("word_count", raw=2 * TEXT), HANG]],  # it ends at once
    ],
)
def test_a_reply_has_a_greatest_size(chat: Chat, steps: list[Step]) -> None:
    reply = chat.say("One.", *steps, headers=JSON)
    assert_failed(reply, 502, "reply_incomplete", chat.session)
    assert chat.recalled() == []


def test_a_reply_of_less_is_whole(chat: Chat) -> None:
    assert chat.say("Think.", [Think(TEXT), "x" * 1900]).turn == 1
    assert chat.say("One.", [TEXT, Call("word_count", {"text": "a"})], ["x" * 1900]).turn == 2


@pytest.mark.rows(where=lambda row: not row["target"].store)
def test_sessions_in_memory_are_bounded_in_bytes(new_chat: NewChat) -> None:
    chat = new_chat()
    reply = chat.say("x" * 17_000, ["Long."], headers=JSON)
    assert_failed(reply, 413, "session_too_large", chat.session)
    chats = [new_chat() for _ in range(40)]
    assert {chat.say("x" * 8000, ["Long."]).turn for chat in chats} == {1}
    assert [chats[-1].say("Again.").turn, chats[0].say("Again.").turn] == [2, 1]


def test_a_full_session_goes_on_without_its_oldest_turns(chat: Chat) -> None:
    call = Call("word_count", {"text": "a b"})
    counted = [("user", "Count."), ("call", "word_count", {"text": "a b"}), ("result", "2")]
    turns = [[*counted, ("assistant", "Two.")]]
    assert chat.say("Count.", [call], ["Two."]).turn == 1
    for number, size in enumerate((3000, 3000, 3000, 20, 7000), 2):
        text = "x" * size
        assert chat.say(text, [f"{number}."]).turn == number
        turns.append([("user", text), ("assistant", f"{number}.")])
    left = chat.recalled("What is left?")
    fitting = [[entry for turn in turns[start:] for entry in turn] for start in (1, 2, 3)]
    assert left in fitting, "whole turns, and no fewer than fit"


def test_a_turn_that_no_session_can_hold_leaves_it_as_it_was(chat: Chat) -> None:
    assert chat.say("One.").turn == 1
    prompt = "x" * 17_000
    assert_failed(chat.say(prompt, headers=JSON), 413, "session_too_large", chat.session)
    assert chat.calls(prompt) == [], "the model was called for a prompt that cannot be kept"
    reply = chat.say("x" * 9000, ["y" * 4500], headers=JSON)
    assert_failed(reply, 413, "session_too_large", chat.session)
    assert chat.recalled() == [("user", "One."), ("assistant", "You said: One.")]


def json_seconds(step: Step) -> float:
    """Return how long this process takes to write and read the first part of a step as JSON."""
    part = step[0]
    text = part.raw if isinstance(part, Call) else part
    began = time.monotonic()
    assert json.loads(json.dumps(text)) == text
    return time.monotonic() - began


def sent_much(fleet: Fleet, provider: Provider, step: Step) -> tuple[Chat, Reply, float]:
    """Return a chat, its reply, and the size of the process in megabytes at its greatest.

    Raises AssertionError if a ping takes much longer than `json_seconds`.
    """
    server = fleet.fresh()
    assert server.post({"prompt": "Wake up."}).status == 200
    calibration = json_seconds(step)
    chat, slowest = Chat(server, provider), 0.0
    exchange = chat.start("Much.", step, headers=JSON)
    while not exchange.answered(within=0.01):
        began = time.monotonic()
        assert server.get("/ping").status == 200
        slowest = max(slowest, time.monotonic() - began)
    status = Path(f"/proc/{server._process.pid}/status").read_text()
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    took = f"a ping of {slowest * 1000:.0f} ms, JSON of {calibration * 1000:.0f} ms"
    print(f"{fleet.target.name}: {int(peak) // 1024} MB, {took}")
    # A ping takes at most three times as long as the calibration. If strands-typescript parses all
    # of the arguments (MAX_REPLY_BYTES of 1 GB), a ping takes more than a minute.
    assert slowest < 10 * calibration + 5
    return chat, exchange.reply(), int(peak) / 1024


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [["x" * (100 * MEGABYTE)], [Call("word_count", raw="x" * (32 * MEGABYTE))]],
    ids=["100 MB in one line", "arguments of 32 MB"],
)
def test_a_provider_that_sends_much_takes_no_process_down(
    fleet: Fleet, provider: Provider, step: Step
) -> None:
    chat, reply, peak = sent_much(fleet, provider, step)
    assert_failed(reply, 502, "reply_incomplete", chat.session)
    assert peak < MOST_MEGABYTES
