"""Fixtures: two replicas of an agent with effects on a store, and the service that counts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.conftest import (  # noqa: F401 (fixtures)
    backing,
    nothing_that_a_strict_provider_refuses,
    provider,
)
from tests.conformance.provider import Provider
from tests.conformance.targets import TARGETS, Target
from tests.effects.counter import CounterService
from tests.effects.world import World
from tests.stores.agents import Agents
from tests.stores.stores import Backing
from tests.support.rows import collected

FULL = (pytest.mark.slow, pytest.mark.full)
AGENTS = Path(__file__).with_name("agents")
SHORT = {
    ("strands-python", "valkey"),
    ("vercel-typescript", "custom-rest"),
}
STORES = ("valkey", "s3", "custom-rest")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "about(what): as in tests/conformance")


def with_effects(target: Target) -> Target:
    base = target.variant.partition("+")[0]
    answers = (("model", "openai-compatible"), ("extras", "[approval,effects]"))
    (agent,) = AGENTS.glob(f"{base.replace('-', '_')}.*")
    return replace(target, agent=agent, variant=f"{base}+effects", answers=answers)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "agents" not in metafunc.fixturenames:
        return
    rows = [
        pytest.param(
            (with_effects(target), store),
            id=f"{target.name}-{store}",
            marks=pytest.mark.slow if (target.name, store) in SHORT else FULL,
        )
        for target in TARGETS
        for store in STORES
    ]
    metafunc.parametrize("agents", collected(metafunc.config, rows), indirect=True, scope="session")


@pytest.fixture(scope="session")
def agents(
    request: pytest.FixtureRequest,
    backing: Backing,  # noqa: F811
    provider: Provider,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Agents]:
    target, store = request.param
    folder = tmp_path_factory.mktemp(f"effects-{target.name}-{store}")
    agents = Agents(target, backing, folder, provider, store)
    yield agents
    agents.stop()


@pytest.fixture
def world(agents: Agents) -> Iterator[World]:
    """Two replicas, and a service that deduplicates by key."""
    service = CounterService(deduplicates=True)
    yield World(agents, service)
    service.close()


@pytest.fixture
def strict_world(agents: Agents) -> Iterator[World]:
    """Two replicas, and a service that counts each call."""
    service = CounterService(deduplicates=False)
    yield World(agents, service)
    service.close()
