"""Fixtures: for each target, servers with background turns, in one process and as replicas."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.auth.issuer import Issuer
from tests.background.follower import Background
from tests.conformance.chat import CANARY
from tests.conformance.conftest import (  # noqa: F401 (fixtures)
    backing,
    gate,
    nothing_that_a_strict_provider_refuses,
    provider,
)
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.targets import TARGETS, Target
from tests.stores.agents import Agents
from tests.stores.stores import Backing
from tests.support.rows import collected

# The code is the same in both targets of a language.
USUAL = {"strands-python", "vercel-typescript"}


def with_background(target: Target, *extras: str) -> Target:
    answers = ("model", "openai-compatible"), ("extras", f"[{','.join(('background', *extras))}]")
    return replace(target, variant=f"{target.name}+background", answers=answers)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" not in metafunc.fixturenames:
        return
    rows = []
    for target in TARGETS:
        is_usual = target.name in USUAL
        marks = (pytest.mark.slow,) if is_usual else (pytest.mark.slow, pytest.mark.full)
        rows.append(pytest.param(target, id=target.name, marks=marks))
    metafunc.parametrize("target", collected(metafunc.config, rows), indirect=True, scope="session")


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Target:
    assert isinstance(request.param, Target)
    return with_background(request.param, "ui")


@pytest.fixture(scope="session")
def fleet(
    target: Target,
    provider: Provider,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    fleet = Fleet(target, tmp_path_factory.mktemp(target.name), provider.origin)
    yield fleet
    assert CANARY not in fleet.stop(), "a prompt or a reply is in a log"


@pytest.fixture
def server(fleet: Fleet) -> Server:
    return fleet.shared()


@pytest.fixture
def chat(server: Server, provider: Provider) -> Background:  # noqa: F811
    return Background(server, provider)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@pytest.fixture
def auth_fleet(
    target: Target,
    provider: Provider,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    """Servers that verify tokens."""
    verified = with_background(replace(target, variant=target.name), "auth")
    fleet = Fleet(verified, tmp_path_factory.mktemp("auth"), provider.origin)
    yield fleet
    fleet.stop()


@pytest.fixture
def s3_agents(
    target: Target,
    backing: Backing,  # noqa: F811
    provider: Provider,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Agents]:
    """Replicas of agents whose sessions are in S3, which has no events."""
    agents = Agents(target, backing, tmp_path_factory.mktemp("s3"), provider, "s3")
    yield agents
    agents.stop()


@pytest.fixture(scope="session")
def agents(
    target: Target,
    backing: Backing,  # noqa: F811
    provider: Provider,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Agents]:
    """Replicas of agents whose sessions are in Valkey."""
    agents = Agents(target, backing, tmp_path_factory.mktemp("replicas"), provider, "valkey")
    yield agents
    agents.stop()
