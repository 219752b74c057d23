"""Fixtures: each target as one agent for all scenarios, with a service of its own.

The scenarios are slow. Those marked `usual` take only some targets in a usual run: what they are
about is the same for the targets of a language, or has tests in each render. The others are soak.
"""

import threading
from collections.abc import Iterator
from typing import cast

import pytest

from tests.conformance.conftest import (  # noqa: F401 (fixtures)
    gate,
    nothing_that_a_strict_provider_refuses,
)
from tests.conformance.targets import TARGETS, Target
from tests.memory.agents import Agent, unique
from tests.memory.provider import MemoryProvider
from tests.stores.conftest import backing  # noqa: F401 (fixture)
from tests.stores.stores import Backing

SLOW, SOAK = (pytest.mark.slow,), (pytest.mark.slow, pytest.mark.soak)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "usual(*names): the targets of it; the others are soak")
    config.addinivalue_line("markers", "only(*names): the targets that a test is about")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("usual")
        only = metafunc.definition.get_closest_marker("only")
        targets = [target for target in TARGETS if not only or target.name in only.args]
        usual = mark.args if mark else [target.name for target in targets]
        rows = [
            pytest.param(target, id=target.name, marks=SLOW if target.name in usual else SOAK)
            for target in targets
        ]
        metafunc.parametrize("target", rows, indirect=True, scope="session")


@pytest.fixture(scope="session")
def provider() -> Iterator[MemoryProvider]:
    provider = MemoryProvider()
    yield provider
    provider.close()


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Target:
    return cast(Target, request.param)


@pytest.fixture(scope="session")
def shared_agent(
    target: Target,
    provider: MemoryProvider,
    backing: Backing,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Agent]:
    agent = Agent(target, backing, tmp_path_factory.mktemp(target.name), provider)
    yield agent
    agent.stop()


@pytest.fixture
def resting(shared_agent: Agent, gate: threading.Event) -> Iterator[Agent]:  # noqa: F811
    """The agent of a target, whose service nobody may have asked what its contract forbids."""
    shared_agent.service.calls.clear()
    yield shared_agent
    gate.set()
    shared_agent.settle()
    assert shared_agent.service.take_violations() == []


@pytest.fixture
def agent(resting: Agent) -> Agent:
    """The same, for a scenario that uses its server: that runs, and has asked for nothing yet."""
    resting.server.settle()
    resting.service.calls.clear()
    return resting


@pytest.fixture
def who() -> str:
    """Somebody whom no other scenario knows."""
    return unique("ada")
