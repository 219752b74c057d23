"""No person is asked to approve a call that will never run."""

import json

import pytest

from tests.conformance.chat import Chat
from tests.conformance.client import JSON
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import Call
from tests.conformance.transcripts import REPLAYED
from tests.conformance.waiting import ASKED, answer, delete, order, runs

pytestmark = [pytest.mark.slow, pytest.mark.about("turns")]

KINDS = json.loads((REPLAYED / "broken_arguments.json").read_text("utf-8"))


@pytest.fixture
def server(approvals: Fleet) -> Server:
    return approvals.shared()


def broken(chat: Chat, raw: str) -> Call:
    """A call that would wait for an approval, with arguments that are not one JSON object."""
    return Call("delete_order", raw=raw.replace("customer", "order_id").replace("ada", order(chat)))


def test_a_call_with_broken_arguments_asks_nobody(chat: Chat) -> None:
    faults = []
    for kind, raw in KINDS.items():
        reply = chat.say(ASKED, [broken(chat, raw)], ["Not deleted."], headers=JSON)
        if reply.status != 200:
            faults.append(f"{kind}: {reply.error}")
        elif "waiting" in reply.json:
            faults.append(f"{kind}: waits for {reply.json['waiting']}")
    assert faults == []
    assert runs(chat) == 0


def test_a_broken_call_beside_one_that_waits(chat: Chat) -> None:
    calls = [broken(chat, '{"customer": "ada"'), delete(chat)]
    reply = chat.say(ASKED, calls, ["Deleted."], headers=JSON)
    assert reply.status == 200, reply
    (waiting,) = reply.json["waiting"]
    assert waiting["input"] == {"order_id": order(chat)}
    assert runs(chat) == 0
    assert answer(chat, [waiting["id"]]).status == 200
    assert runs(chat) == 1
    history = chat.calls(ASKED)[-1].history
    results = [entry[1] for entry in history if entry[0] == "result"]
    assert len(results) == 2
    assert sum("The arguments of this call are not one JSON object" in it for it in results) == 1
