"""Fixtures: each target, with and without a store of sessions, as one agent for all scenarios.

The whole table runs with `-m ''`. A usual run takes the rows of USUAL, or those that a mark `usual`
of a test names: what such a test is about is the same in all renders of a language.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import cast

import pytest

from tests.conformance.conftest import (  # noqa: F401 (fixtures)
    gate,
    nothing_that_a_strict_provider_refuses,
)
from tests.conformance.targets import TARGETS, Target
from tests.memory.agents import Agent, unique, with_memory
from tests.memory.provider import MemoryProvider
from tests.stores.stores import Backing
from tests.support.rows import collected

STORES = {"valkey": "valkey", "s3": "s3", "alone": ""}
USUAL = {
    "strands-python-valkey",
    "vercel-python-alone",
    "strands-typescript-alone",
    "vercel-typescript-valkey",
}
SLOW, FULL = (pytest.mark.slow,), (pytest.mark.slow, pytest.mark.full)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "usual(*rows): the rows of it; the others are full")
    config.addinivalue_line("markers", "only(*names): the targets that a test is about")
    config.addinivalue_line("markers", "stores(*names): the stores that a test is about")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("usual")
    only = metafunc.definition.get_closest_marker("only")
    stores = metafunc.definition.get_closest_marker("stores")
    names_of_stores = stores.args if stores else ("valkey", "alone")
    all_rows = [(target, store) for target in TARGETS for store in names_of_stores]
    usual = set(mark.args) if mark else USUAL
    names = {f"{target.name}-{store}" for target, store in all_rows}
    assert usual <= names, f"{metafunc.definition.name}: there is no {usual - names}"
    rows = []
    for target, store in all_rows:
        if only is None or target.name in only.args:
            name = f"{target.name}-{store}"
            marks = SLOW if name in usual else FULL
            rows.append(pytest.param((target, store), id=name, marks=marks))
    metafunc.parametrize("target", collected(metafunc.config, rows), indirect=True, scope="session")


@pytest.fixture(scope="session")
def provider() -> Iterator[MemoryProvider]:
    provider = MemoryProvider()
    yield provider
    provider.close()


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Target:
    target, store = cast(tuple[Target, str], request.param)
    return with_memory(target, STORES[store])


@pytest.fixture(scope="session")
def backing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backing]:
    with ExitStack() as stack:
        yield Backing(tmp_path_factory.mktemp("backing"), stack)


@pytest.fixture(scope="session")
def shared_agent(
    target: Target,
    provider: MemoryProvider,
    backing: Backing,
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
    return unique("robin")
