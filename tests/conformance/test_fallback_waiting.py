"""A second model in a project with every other extra: its turns wait for a person, too."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.conformance.chat import Chat
from tests.conformance.client import JSON
from tests.conformance.conftest import OpenFleet
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.steps import Refuse
from tests.conformance.targets import Target, with_own_agent
from tests.conformance.test_fallback import FIRST, SECOND, asked, script
from tests.conformance.test_logs import lines
from tests.conformance.waiting import ASKED, delete, ids, runs

pytestmark = [pytest.mark.slow, pytest.mark.about("turns")]


@pytest.fixture(scope="module")
def everything(target: Target, open_fleet: OpenFleet) -> Iterator[Fleet]:
    """Servers whose agent has a tool that asks for an approval, and all that plugs into a turn."""
    own = with_own_agent(target, approval=True)
    extras = ("extras", "[tracing, mcp, approval, fallback]")
    with open_fleet(replace(own, answers=(*own.answers, extras))) as fleet:
        yield fleet


def test_a_turn_of_the_second_model_waits(everything: Fleet, provider: Provider) -> None:
    chat = Chat(everything.shared(MODEL_FALLBACK=SECOND), provider)
    script(chat, ASKED, [[Refuse(503)]], [delete(chat)])
    waiting = ids(chat.say(ASKED, headers=JSON))
    assert (len(waiting), runs(chat)) == (1, 0)
    script(chat, ASKED, [["Deleted."]])
    reply = chat.post({"approve": waiting}, JSON)
    assert (reply.json["turn"], reply.json["reply"], runs(chat)) == (1, "Deleted.", 1)
    assert reply.json["model"] == FIRST
    assert asked(chat, ASKED) == [FIRST, SECOND, FIRST]
    _, second, third = lines(chat, 3)
    assert "outcome=waiting" in second
    assert f" model={SECOND}" in second
    assert "model=" not in third
