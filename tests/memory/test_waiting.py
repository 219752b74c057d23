"""A turn that waited for a person recalls by its prompt when it goes on, as when it began."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.chat import Chat
from tests.conformance.client import JSON
from tests.conformance.steps import Call, Step
from tests.conformance.targets import TARGETS, with_own_agent
from tests.conformance.waiting import ASKED, answer, delete, ids
from tests.memory.agents import Agent, ping, unique, with_memory
from tests.memory.provider import MemoryProvider
from tests.stores.servers import wait_for
from tests.stores.stores import Backing


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("name", [target.name for target in TARGETS])
def test_a_turn_that_goes_on_recalls_by_its_prompt(
    name: str, tmp_path: Path, provider: MemoryProvider, backing: Backing
) -> None:
    (target,) = [t for t in TARGETS if t.name == name]
    target = with_memory(with_own_agent(target, approval=True), "")
    target = replace(target, answers=(*target.answers, ("model", "openai-compatible")))
    agent = Agent(target, backing, tmp_path, provider)
    try:
        who = unique("robin")
        agent.learn_nothing()
        agent.service.remember(agent.notes, f"/users/{who}/facts", ASKED)
        chat = Chat(agent.fresh(), provider, actor=who)
        add = Call("add_memory", {"entries": ["She likes opera."]})
        steps: list[Step] = [[add], ["I look it up. ", delete(chat)], ["Done."]]
        waiting = ids(chat.say(ASKED, *steps, headers=JSON))
        agent.service.calls.clear()
        assert answer(chat, waiting).json["turn"] == 1
        calls = agent.service.calls.of("RetrieveMemoryRecords")
        queries = {call.given["searchCriteria"]["searchQuery"] for call in calls}
        assert queries == {f"{ASKED}{chat.tag}"}
        assert [len(provider.remembered(call)) for call in chat.calls(ASKED)] == [1, 1, 1]
        # What was added before the wait is recorded with the turn.
        wait_for("a Healthy", lambda: ping(chat.server) == "Healthy")
        for memory in (agent.notes, agent.team):
            assert [text for role, text in agent.said(memory, who)][-1] == "She likes opera."
    finally:
        agent.stop()
