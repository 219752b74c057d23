"""Fixtures: the servers that keep sessions, and for each target and store its replicas.

Each test runs for every target and every store. Those marked `spread` take six of them in a
usual run, so that each language meets each store, and those marked `once` one for each language;
the others are `full`.
"""

from collections.abc import Iterator

import pytest

from tests.conformance.chat import Chat
from tests.conformance.conftest import (  # noqa: F401 (fixtures)
    backing,
    gate,
    nothing_that_a_strict_provider_refuses,
    provider,
)
from tests.conformance.provider import Provider
from tests.conformance.targets import TARGETS, Target, with_own_agent
from tests.stores.agents import Agents, Replica, on
from tests.stores.stores import STORES, Backing
from tests.support.rows import collected

FULL = (pytest.mark.slow, pytest.mark.full)
SPREAD = {
    ("strands-python", "valkey"),
    ("vercel-python", "s3"),
    ("vercel-python", "custom-lambda"),
    ("strands-typescript", "s3"),
    ("vercel-typescript", "valkey"),
    ("vercel-typescript", "custom-rest"),
}
ONE_EACH = {
    ("strands-python", "valkey"),
    ("vercel-python", "custom-lambda"),
    ("strands-typescript", "s3"),
    ("vercel-typescript", "custom-rest"),
}
ONCE = {("vercel-python", "s3"), ("strands-typescript", "valkey")}
SAMPLES = {"spread": SPREAD, "one_each": ONE_EACH, "once": ONCE}


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "spread: each language with each store; the others are full",
        "one_each: each target with one store; the others are full",
        "once: each language with one store; the others are full",
        "stores(*names): the stores that a test is about",
        "about(what): as in tests/conformance, whose fixtures are used here",
    ):
        config.addinivalue_line("markers", line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "agents" not in metafunc.fixturenames:
        return
    marks = {mark.name: mark for mark in metafunc.definition.iter_markers()}
    stores = marks["stores"].args if "stores" in marks else tuple(STORES)
    rows = []
    for target in TARGETS:
        for store in stores:
            usual = [sample for name, sample in SAMPLES.items() if name in marks]
            chosen = all((target.name, store) in sample for sample in usual)
            mark = pytest.mark.slow if chosen else FULL
            row = pytest.param((target, store), id=f"{target.name}-{store}", marks=mark)
            rows.append(row)
    metafunc.parametrize("agents", collected(metafunc.config, rows), indirect=True, scope="session")


@pytest.fixture(scope="session")
def agents(
    request: pytest.FixtureRequest,
    backing: Backing,  # noqa: F811
    provider: Provider,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Agents]:
    target, store = request.param
    assert isinstance(target, Target)
    folder = tmp_path_factory.mktemp(f"{target.name}-{store}")
    agents = Agents(target, backing, folder, provider, store)
    yield agents
    agents.stop()
    provider.forget()


@pytest.fixture
def pair(agents: Agents) -> Iterator[tuple[Replica, Replica]]:
    """Two replicas on one store, with default settings."""
    yield agents.pair()
    agents.settle()


@pytest.fixture
def one(pair: tuple[Replica, Replica]) -> Replica:
    return pair[0]


@pytest.fixture
def two(pair: tuple[Replica, Replica]) -> Replica:
    return pair[1]


@pytest.fixture
def hasty(pair: tuple[Replica, Replica], agents: Agents) -> Replica:  # noqa: ARG001
    """A third replica, which does not wait long for the store."""
    return agents.hasty()


@pytest.fixture
def waiting_agents(
    agents: Agents,
    provider: Provider,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Agents]:
    """Replicas whose agent has a tool that asks for an approval."""
    target = with_own_agent(agents.target, approval=True)
    folder = tmp_path_factory.mktemp("waiting")
    approvals = Agents(target, agents.backing, folder, provider, agents.store_name)
    yield approvals
    approvals.stop()


@pytest.fixture
def chat(one: Replica, provider: Provider) -> Chat:  # noqa: F811
    """A session on the first replica."""
    return Chat(one.server, provider)


@pytest.fixture
def beside(chat: Chat, two: Replica) -> Chat:
    """The same session on the second replica."""
    return on(two.server, chat)
