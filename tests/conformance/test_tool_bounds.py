"""Calls that wait until other tools of their step have ended."""

import pytest

from tests.conformance.chat import Chat
from tests.conformance.client import JSON
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.steps import Call
from tests.conformance.test_current_turn import await_run
from tests.conformance.waiting import order, read, runs

pytestmark = pytest.mark.about("turns")


@pytest.fixture
def chat(own_agents: Fleet, provider: Provider) -> Chat:
    """A session of an agent that runs one tool at once."""
    return Chat(own_agents.shared(MAX_TOOLS_AT_ONCE=1), provider)


def test_one_at_once_runs_all(chat: Chat) -> None:
    names = [str(number) for number in range(20)]
    reply = chat.say("Read.", [read(chat, name) for name in names], ["Done."], headers=JSON)
    assert reply.json["reply"] == "Done."
    assert [runs(chat, "read_order", name) for name in names] == [1] * 20
    history = chat.history(chat.calls("Read.")[-1])
    results = [entry[1] for entry in history if entry[0] == "result"]
    assert results == [f"order {order(chat, name)}" for name in names]


def test_a_waiting_call_does_not_run_after_its_turn(chat: Chat) -> None:
    name = f"end-of-{chat.session}"
    exchange = chat.start("Wait.", [Call("wait_for_the_end", {"name": name}), read(chat)])
    await_run(chat.server, f"running {name}")
    exchange.leave()
    await_run(chat.server, f"stopped {name} True")
    assert chat.say("Next.").turn == 1
    assert runs(chat, "read_order") == 0
