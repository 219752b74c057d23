"""A service that is no use: turns neither fail nor wait for it, and nothing is lost."""

import pytest

from tests.agentcore.faults import EVERY
from tests.conformance.chat import Chat
from tests.conformance.server import Server
from tests.conformance.targets import TARGETS
from tests.memory.agents import RECALL, Agent, of

ASKED = "RetrieveMemoryRecords"
VALKEY = [f"{target.name}-valkey" for target in TARGETS]


def not_recalled(server: Server) -> list[str]:
    """The lines of a log about what could not be recalled."""
    return [line for line in server.log.splitlines() if "could not search namespace " in line]


@pytest.mark.usual(*VALKEY)
def test_a_turn_goes_on_without_a_service_that_hangs(agent: Agent, who: str) -> None:
    other, hasty = f"{who}2", agent.hasty
    for name in (who, other):
        agent.service.remember(agent.notes, f"/users/{name}/facts", "tea")
    agent.service.calls.clear()
    before = len(not_recalled(hasty))
    # Nothing of one person answers, and only what is the project's of the other.
    agent.service.faults.hang(ASKED, times=None, where=lambda it: who + "/" in str(it.values()))
    agent.service.faults.hold(ASKED, times=None, where=of(agent.team))
    chats = [Chat(hasty, agent.provider, actor=name) for name in (who, other)]
    running = [chat.start("tea") for chat in chats]
    assert [one.reply().text for one in running] == ["You said: tea"] * 2
    assert [agent.shown(chat, "tea") for chat in chats] == [[], ["tea"]]
    assert [len(chat.calls("tea")) for chat in chats] == [1, 1]
    asked = [call.given for call in agent.service.calls.of(ASKED)]
    assert len(asked) == 6, f"none is repeated in a turn: {asked}"
    lines = not_recalled(hasty)[before:]
    assert len(lines) == 4, "a line for each namespace"
    assert all(f"no answer within {RECALL} s" in line and who not in line for line in lines)
    agent.service.faults.clear()
    assert chats[0].say("tea?").turn == 2
    assert "tea" in agent.shown(chats[0], "tea?")


@pytest.mark.parametrize("kind", ["throttle", "deny", "fail", "cut"])
def test_a_turn_continues_when_recall_fails(agent: Agent, who: str, kind: str) -> None:
    agent.service.remember(agent.notes, f"/users/{who}/facts", "tea")
    before = len(not_recalled(agent.server))
    getattr(agent.service.faults, kind)(ASKED, times=None)
    chat = agent.chat(who)
    assert chat.say("tea").text == "You said: tea"
    assert agent.shown(chat, "tea") == []
    assert len(chat.calls("tea")) == 1
    asked = [call.given for call in agent.service.calls.of(ASKED)]
    assert len(asked) == 3, f"none is repeated in a turn: {asked}"
    lines = not_recalled(agent.server)[before:]
    assert len(lines) == 3, "a line for each namespace"
    assert who not in "".join(lines)
    agent.service.faults.clear()
    assert chat.say("tea?").turn == 2
    assert "tea" in agent.shown(chat, "tea?")


@pytest.mark.usual("strands-python-valkey", "vercel-typescript-alone")
def test_a_service_that_is_down_is_told_when_it_is_back(agent: Agent, who: str) -> None:
    chat = agent.chat(who)
    assert chat.say("One.").turn == 1
    agent.idle()
    agent.down()
    assert [chat.say(text).turn for text in ("Two.", "Three.")] == [2, 3], "no turn waits for it"
    assert agent.ping() == "HealthyBusy"
    agent.up()
    agent.idle()
    for memory in (agent.notes, agent.team):
        said = [text.partition(" canary")[0] for role, text in agent.said(memory, who)]
        assert said[::2] == ["One.", "Two.", "Three."]


@pytest.mark.full
@pytest.mark.usual("vercel-python-valkey", "strands-typescript-valkey")
def test_a_service_that_throttles_everything_is_reported(agent: Agent, who: str) -> None:
    agent.service.faults.throttle(EVERY, times=7)
    chat = agent.chat(who)
    assert chat.say("One.").turn == 1
    agent.idle()
    for memory in (agent.notes, agent.team):
        assert len(agent.said(memory, who)) == 2
