"""A service that is no use: turns neither fail nor wait for it, and nothing is lost."""

import time

import pytest

from tests.agentcore.faults import EVERY
from tests.memory.agents import RECALL, SLACK, Agent


@pytest.mark.parametrize("kind", ["hold", "hang", "throttle", "deny", "fail", "cut"])
def test_a_turn_goes_on_without_what_cannot_be_recalled(agent: Agent, who: str, kind: str) -> None:
    agent.service.remember(agent.notes, f"/users/{who}/facts", "tea")
    agent.server.settle()
    before = agent.server.log.count("nothing recalled from")
    getattr(agent.service.faults, kind)("RetrieveMemoryRecords", times=None)
    chat, started = agent.chat(who), time.monotonic()
    assert chat.say("tea").text == "You said: tea"
    seconds = time.monotonic() - started
    waits = kind in ("hold", "hang")
    assert seconds < (RECALL if waits else 0) + SLACK
    assert agent.shown(chat, "tea") == []
    assert len(chat.calls("tea")) == 1
    asked = [call.given for call in agent.service.calls.of("RetrieveMemoryRecords")]
    assert len(asked) == 3, f"none is repeated in a turn: {asked}"
    lines = [line for line in agent.server.log.splitlines() if "nothing recalled from" in line]
    assert len(lines) - before == 3, "a line for each namespace"
    assert who not in "".join(lines[before:])
    agent.service.faults.clear()
    assert chat.say("tea?").turn == 2
    assert "tea" in agent.shown(chat, "tea?")


def test_one_place_that_is_slow_takes_nothing_from_the_others(agent: Agent, who: str) -> None:
    agent.service.remember(agent.notes, f"/users/{who}/facts", "tea")
    team = {"memoryId": agent.team}
    agent.service.faults.hang(
        "RetrieveMemoryRecords", where=lambda given: team.items() <= given.items()
    )
    chat = agent.chat(who)
    chat.say("tea")
    assert agent.shown(chat, "tea") == ["tea"]


def test_a_service_that_is_down_is_told_when_it_is_back(agent: Agent, who: str) -> None:
    chat = agent.chat(who)
    assert chat.say("One.").turn == 1
    agent.idle()
    agent.down()
    started = time.monotonic()
    assert [chat.say(text).turn for text in ("Two.", "Three.")] == [2, 3]
    assert time.monotonic() - started < SLACK
    assert agent.ping() == "HealthyBusy"
    agent.up()
    agent.idle()
    for memory in (agent.notes, agent.team):
        said = [text.partition(" canary")[0] for role, text in agent.said(memory, who)]
        assert said[::2] == ["One.", "Two.", "Three."]


def test_a_service_that_throttles_everything_is_told_in_the_end(agent: Agent, who: str) -> None:
    agent.service.faults.throttle(EVERY, times=7)
    chat = agent.chat(who)
    assert chat.say("One.").turn == 1
    agent.idle()
    for memory in (agent.notes, agent.team):
        assert len(agent.said(memory, who)) == 2
