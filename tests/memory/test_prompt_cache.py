"""Recalled memories change with each turn, so they stand behind what a provider caches."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conformance.chat import Chat
from tests.conformance.targets import VENDOR_TARGETS
from tests.memory.agents import Agent, unique, with_memory
from tests.memory.provider import MemoryProvider
from tests.stores.stores import Backing

CLAUDE = [t for t in VENDOR_TARGETS if t.name.endswith(("-anthropic", "-bedrock"))]
LONG = "Lorem ipsum dolor sit amet, consectetur adipisici elit. " * 80
POINTS = ("cache_control", "cachePoint")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(t.name, marks=[] if t.name.endswith("-anthropic") else [pytest.mark.full])
        for t in CLAUDE
    ],
)
def test_a_turn_with_memories_reads_the_cache_of_the_previous_turn(
    name: str, tmp_path: Path, provider: MemoryProvider, backing: Backing
) -> None:
    (target,) = [t for t in CLAUDE if t.name == name]
    agent, who = Agent(with_memory(target, ""), backing, tmp_path, provider), unique("robin")
    try:
        agent.learn_nothing()
        agent.service.remember(agent.notes, f"/users/{who}/facts", "The cat is called Miso.")
        chat = Chat(agent.fresh(MODEL="priced-claude"), provider, actor=who)
        prompts = [f"{number} What is the cat called? {LONG}" for number in range(3)]
        for prompt in prompts:
            assert chat.say(prompt).status == 200
        calls = [chat.calls(prompt)[-1] for prompt in prompts]
        for call in calls:
            assert "Miso" in provider.block(call)
            text = json.dumps(call.request["messages"])
            assert 0 < max(map(text.rfind, POINTS)) < text.rfind("<memory>")
        for before, call in pairwise(calls):
            assert call.usage.read == before.usage.read + before.usage.stored > 1000
            assert call.usage.plain < 50, "only the memories"
    finally:
        agent.stop()
