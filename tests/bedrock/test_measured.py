"""What memories cost a turn: as much as the slowest of them, whoever and however many remember."""

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bedrock.agents import shown
from tests.bedrock.test_both import Both, target  # noqa: F401 (a fixture)
from tests.conformance.client import JSON
from tests.conformance.targets import Target
from tests.memory.provider import MemoryProvider

ACTORS, RECORDS = 1_000, 10  # of each, half of them in each memory
TURNS = 9

pytestmark = [pytest.mark.full, pytest.mark.usual()]


@pytest.fixture
def both(
    target: Target,  # noqa: F811
    provider: MemoryProvider,
    tmp_path: Path,
) -> Iterator[Both]:
    with ExitStack() as stack:
        yield Both(target, tmp_path, provider, stack)


def seconds(both: Both, actor: str) -> float:
    """How long a turn takes, in the middle of some."""
    spent = []
    for number in range(TURNS):
        start = time.perf_counter()
        assert both.chat(actor).say(f"What is it, number {number}?", headers=JSON).turn == 1
        spent.append(time.perf_counter() - start)
    return statistics.median(spent)


def test_a_recall_takes_as_long_as_the_slowest_memory_and_recording_nothing(both: Both) -> None:
    agentcore, bedrock = both.agentcore, both.bedrock
    nothing = seconds(both, "nobody")
    for number in range(ACTORS):
        texts = [f"Fact {index} of {number} is blue." for index in range(RECORDS)]
        half, place = RECORDS // 2, f"/users/actor-{number}/facts"
        both.agentcore.remember(both.memory, place, *texts[:half])
        both.bedrock.remember(both.base, f"{place}/", *texts[half:])
    full = seconds(both, "actor-77")
    chat = both.chat("actor-77")
    chat.say("Which fact is blue?")
    found = shown(both.provider, chat, "Which fact is blue?")
    assert found
    assert all(" of 77 is " in text for text in found), found

    # One after the other, the memories take 3 delays. The bound is less, because a turn without
    # delays takes at most a quarter of one, unless the machine is very slow.
    delay = min(max(0.3, 4 * full), 2)
    agentcore.faults.slow("RetrieveMemoryRecords", delay, times=None)
    bedrock.faults.slow("Retrieve", 2 * delay, times=None)
    slow = seconds(both, "actor-77")
    agentcore.faults.clear()
    bedrock.faults.clear()

    both.idle()
    for service, verb in (
        (agentcore, "CreateEvent"),
        (bedrock, "IngestKnowledgeBaseDocuments"),
    ):
        service.faults.slow(verb, 30, times=None)
    recording = seconds(both, "actor-78")
    agentcore.faults.clear()
    bedrock.faults.clear()

    figures = {"empty": nothing, "10,000 records": full, "slow": slow, "recording": recording}
    print({name: f"{1000 * value:.0f} ms" for name, value in figures.items()})
    assert full < 3 * nothing + 0.2  # a turn takes about 0.05 s
    assert 2 * delay <= slow < full + 2.75 * delay, "one after the other, or so"
    assert recording < 3 * full + 0.2
