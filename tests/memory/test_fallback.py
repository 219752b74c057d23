"""The second model is shown what the first one would have been."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.chat import Chat
from tests.conformance.steps import Refuse
from tests.conformance.targets import TARGETS
from tests.memory.agents import Agent, unique, with_memory
from tests.memory.provider import MemoryProvider
from tests.stores.stores import Backing

FIRST, SECOND = "test-model", "second-model"


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("name", [target.name for target in TARGETS])
def test_the_second_model_sees_the_memories(
    name: str, tmp_path: Path, provider: MemoryProvider, backing: Backing
) -> None:
    (target,) = [t for t in TARGETS if t.name == name]
    target = with_memory(target, "")
    answers = (*target.answers, ("model", "openai-compatible"))
    agent = Agent(
        replace(target, variant=f"{name}+fallback", answers=answers), backing, tmp_path, provider
    )
    try:
        who = unique("robin")
        agent.learn_nothing()
        agent.service.remember(agent.notes, f"/users/{who}/facts", "The cat is called Miso.")
        chat = Chat(agent.fresh(MODEL_FALLBACK=SECOND), provider, actor=who)
        question = "What is the cat called?"
        provider.script(f"{FIRST}: {question}{chat.tag}", *[[Refuse(503)]] * 3)
        provider.script(f"{SECOND}: {question}{chat.tag}", ["Miso."])
        assert chat.say(question).text == "Miso."
        *_, call = chat.calls(question)
        assert call.model == SECOND
        assert "Miso" in provider.block(call)
    finally:
        agent.stop()
