"""Fixtures: each target with a knowledge base as its long-term memory."""

from collections.abc import Iterator
from typing import cast

import pytest

from tests.bedrock.agents import Agent, sentences, with_knowledge_base
from tests.conformance.targets import TARGETS, Target
from tests.memory.agents import unique
from tests.memory.provider import MemoryProvider
from tests.support.rows import collected

SLOW, FULL = (pytest.mark.slow,), (pytest.mark.slow, pytest.mark.full)
USUAL = {"strands-python", "vercel-typescript"}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "usual(*rows): the rows of it; the others are full")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("usual")
    usual = set(mark.args) if mark else USUAL
    rows = [
        pytest.param(it, id=it.name, marks=SLOW if it.name in usual else FULL) for it in TARGETS
    ]
    metafunc.parametrize("target", collected(metafunc.config, rows), indirect=True, scope="session")


@pytest.fixture(scope="session")
def provider() -> Iterator[MemoryProvider]:
    provider = MemoryProvider()
    provider.summarize = sentences
    yield provider
    provider.close()


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Target:
    return with_knowledge_base(cast(Target, request.param))


@pytest.fixture(scope="session")
def shared_agent(
    target: Target, provider: MemoryProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Agent]:
    agent = Agent(target, tmp_path_factory.mktemp(target.name), provider)
    yield agent
    agent.stop()


@pytest.fixture
def agent(shared_agent: Agent) -> Iterator[Agent]:
    """The agent of a target, whose service nobody may have asked what its contract forbids."""
    bedrock = shared_agent.bedrock
    shared_agent.server  # noqa: B018 (it starts)
    bedrock.calls.clear()
    yield shared_agent
    bedrock.faults.clear()
    bedrock.service.leaks, bedrock.service.refused = False, None
    bedrock.service.ingestion_delay = bedrock.service.deletion_delay = 0
    shared_agent.idle()
    assert bedrock.take_violations() == []


@pytest.fixture
def who() -> str:
    """Somebody whom no other scenario knows."""
    return unique("robin")
