"""current_turn(): a tool knows who asks, and stops with its turn."""

import re
import time
import uuid

import pytest

from tests.conformance.chat import Chat
from tests.conformance.client import KEY
from tests.conformance.conftest import NewChat
from tests.conformance.provider import PATIENCE
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import HANG, Call, Step

pytestmark = pytest.mark.about("turns")


@pytest.fixture
def server(own_agents: Fleet) -> Server:
    return own_agents.shared()


def result_of(chat: Chat, text: str) -> str:
    """What the tool of a turn returned."""
    role, result = chat.history(chat.calls(text)[-1])[-1]
    assert role == "result"
    return str(result)


@pytest.mark.parametrize("tool", ["my_orders", "my_orders_at_once"])
def test_a_tool_gets_the_orders_of_the_calling_actor(new_chat: NewChat, tool: str) -> None:
    """Both turns are in the tool at the same time, in nested calls, other tasks and threads too."""
    ada, bob = new_chat(actor="ada"), new_chat(actor="bob")
    ada.say("I am Ada.")
    asking: Step = [Call(tool, {"place": str(uuid.uuid4())})]
    exchanges = [
        chat.start("Mine?", asking, ["Done."], headers={KEY: f"key-of-{chat.actor}"})
        for chat in (ada, bob)
    ]
    assert [exchange.reply().turn for exchange in exchanges] == [2, 1]
    assert result_of(ada, "Mine?") == f"orders of ada {ada.session} 2 key-of-ada"
    assert result_of(bob, "Mine?") == f"orders of bob {bob.session} 1 key-of-bob"


def test_two_sessions_of_one_actor_are_two_turns(new_chat: NewChat) -> None:
    one, two = new_chat(actor="ada"), new_chat(actor="ada")
    asking: Step = [Call("my_orders", {"place": str(uuid.uuid4())})]
    exchanges = [chat.start("Mine?", asking, ["Done."]) for chat in (one, two)]
    assert [exchange.reply().turn for exchange in exchanges] == [1, 1]
    for chat in (one, two):
        assert result_of(chat, "Mine?") == f"orders of ada {chat.session} 1 None"


def test_two_calls_of_one_turn_are_of_that_turn(chat: Chat) -> None:
    """Nobody is named, and there is no key."""
    call = Call("my_orders", {"place": str(uuid.uuid4())})
    assert chat.say("Mine?", [call, call], ["Done."]).turn == 1
    results = [entry[1] for entry in chat.history(chat.calls("Mine?")[-1]) if entry[0] == "result"]
    assert results == [f"orders of None {chat.session} 1 None"] * 2


def test_a_turn_that_is_replaced_keeps_its_number(new_chat: NewChat) -> None:
    chat = new_chat(actor="ada")
    for text in ("One.", "Two.", "Three."):
        chat.say(text)
    asking: list[Step] = [[Call("my_orders_at_once", {"place": p})] for p in ("lonely", "lonely")]
    chat.replace(2, "Mine?", [*asking[0], *asking[1]], ["Done."])
    assert result_of(chat, "Mine?") == f"orders of ada {chat.session} 2 None"


def test_outside_a_turn_there_is_none(server: Server) -> None:
    assert server.address
    (line,) = [line for line in server.log.splitlines() if line.startswith("outside a turn: ")]
    assert re.search(r"urrent_?[tT]urn\(\) was called outside a turn: call it in a tool\.$", line)


@pytest.mark.parametrize("step", [[HANG], ["Once upon ", HANG]], ids=["silent", "in its reply"])
def test_a_second_model_is_not_read_on_when_the_client_has_left(chat: Chat, step: Step) -> None:
    chat.script("A long text.", step)
    asking: Step = [Call("summarize", {"text": f"A long text.{chat.tag}"})]
    exchange = chat.start("Summarize it.", asking, ["Done."])
    call = chat.call("A long text.")
    while call.chunks < len(step) - 1:
        time.sleep(0.01)
    exchange.leave()
    chat.gone("A long text.")
    assert chat.recalled() == []


@pytest.mark.slow
def test_a_second_model_is_not_read_on_after_the_time_of_its_turn(
    own_agents: Fleet, new_chat: NewChat
) -> None:
    chat = new_chat().elsewhere(own_agents.shared(TURN_TIMEOUT_SECONDS=1))
    chat.script("A long text.", [HANG])
    asking: Step = [Call("summarize", {"text": f"A long text.{chat.tag}"})]
    reply = chat.say("Summarize it.", asking, ["Done."])
    assert (reply.status, reply.error) == (504, "turn_timeout")
    chat.gone("A long text.")


def test_a_second_model_answers_in_a_tool(chat: Chat) -> None:
    chat.script("A long text.", ["Short", "."])
    asking: Step = [Call("summarize", {"text": f"A long text.{chat.tag}"})]
    assert chat.say("Summarize it.", asking, ["Done."]).text == "Done."
    assert result_of(chat, "Summarize it.").strip() == "Short."


def test_a_tool_that_cannot_be_cancelled_sees_the_end_of_its_turn(chat: Chat) -> None:
    name = str(uuid.uuid4())
    exchange = chat.start("Wait.", [Call("wait_for_the_end", {"name": name})], ["Done."])
    await_run(chat.server, f"running {name}")
    exchange.leave()
    await_run(chat.server, f"stopped {name} True")
    assert chat.recalled() == []


def await_run(server: Server, line: str) -> None:
    """Wait until a tool has noted this."""
    runs, deadline = server.folder / "runs", time.monotonic() + PATIENCE
    while not (runs.exists() and line in runs.read_text().splitlines()):
        assert time.monotonic() < deadline, f"there was never {line!r}"
        time.sleep(0.02)
