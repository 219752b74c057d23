"""Replicas that summarize: a session has one summary, wherever its turns run."""

import json
import threading
from collections.abc import Iterator

import pytest

from tests.conformance.chat import Chat, assert_failed
from tests.conformance.client import JSON
from tests.conformance.provider import Provider
from tests.conformance.steps import Hold, Refuse
from tests.conformance.targets import compacting
from tests.conformance.test_compaction import MOST, fill, summaries_for, summary
from tests.stores.agents import Agents, Home, on

pytestmark = [pytest.mark.spread, pytest.mark.stores("valkey")]


@pytest.fixture
def home(
    agents: Agents, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Home, Chat, Chat]]:
    """A full session, as two replicas see it."""
    folder = tmp_path_factory.mktemp("compaction")
    target = compacting(agents.target)
    both = Agents(target, agents.backing, folder, provider, agents.store_name)
    home = both.home()
    one, two = (both.fresh(home, HISTORY_MESSAGES=MOST) for _ in range(2))
    chat = Chat(one.server, provider)
    fill(chat)
    yield home, chat, on(two.server, chat)
    both.stop()


def test_of_two_summaries_at_once_one_is_committed(home: tuple[Home, Chat, Chat]) -> None:
    one, chat, beside = home
    gates = {name: threading.Event() for name in ("wins", "loses")}
    loser = chat.start("Loses.", [Hold(gates["loses"]), "Lost."], headers=JSON)
    winner = beside.start("Wins.", [Hold(gates["wins"]), "Won."], headers=JSON)
    chat.call("Loses.")
    beside.call("Wins.")
    gates["wins"].set()
    assert winner.reply().json["turn"] == 6
    gates["loses"].set()
    assert_failed(loser.reply(), 409, "session_conflict", chat.session)
    assert len(summaries_for(chat)) == 2
    stored = one.store.read(chat.session)
    assert stored
    assert stored.count(b"<summary of=") == 1
    first = summary("The facts: fact-1 fact-1.", 3)
    assert chat.recalled("Seven.")[:2] == first
    assert len(summaries_for(chat)) == 2, "the one that lost continues from the other's"
    assert json.loads(one.store.read(chat.session) or b"")["app_data"]["turns"][0]["at"] == 2


def test_a_turn_that_fails_leaves_the_record_and_any_render_goes_on_with_a_summary(
    home: tuple[Home, Chat, Chat], agents: Agents
) -> None:
    one, chat, beside = home
    before = one.store.read(chat.session)
    assert ", with a summary" not in one.run("sessions", "show", chat.session).stdout
    assert_failed(chat.say("Six.", [Refuse(500)]), 502, "model_failed", chat.session)
    assert one.store.read(chat.session) == before
    assert beside.say("Six, again.").turn == 6
    shown = one.run("sessions", "show", chat.session).stdout
    assert ", with a summary before turn 4" in shown.splitlines()[0]
    one.target = agents.target
    one.bring(agents.store_name)
    plain = on(agents.fresh(one, HISTORY_MESSAGES=MOST).server, chat)
    assert plain.recalled("Seven.")[:2] == summary("The facts: fact-1 fact-1.", 3)
    report = json.loads(one.run("sessions", "show", chat.session, "--json").stdout)
    assert report["summary_before"] == 4
