"""Fixtures: an issuer, and for each target a server that accepts its tokens."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.auth.issuer import Issuer
from tests.conformance.conftest import gate, provider  # noqa: F401 (fixtures)
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.targets import TARGETS, Target, with_own_agent
from tests.support.rows import collected

# What a token is to a request is the same code in both targets of a language.
USUAL = {"strands-python", "vercel-typescript"}


def with_auth(target: Target, *extras: str) -> Target:
    own = with_own_agent(target)
    base = own.variant.partition("+")[0]
    answers = (("model", "openai-compatible"), ("extras", f"[{','.join(('auth', *extras))}]"))
    return replace(own, variant=base, answers=answers)


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
    return with_auth(request.param)


@pytest.fixture(scope="session")
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@pytest.fixture
def own_issuer() -> Iterator[Issuer]:
    """An issuer for a test that makes it fail."""
    with Issuer() as issuer:
        yield issuer


@pytest.fixture(scope="session")
def fleet(
    target: Target,
    provider: Provider,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    fleet = Fleet(target, tmp_path_factory.mktemp("auth"), provider.origin)
    yield fleet
    fleet.stop()


@pytest.fixture(scope="session")
def server(fleet: Fleet, issuer: Issuer) -> Server:
    return fleet.fresh(**issuer.environment)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack
