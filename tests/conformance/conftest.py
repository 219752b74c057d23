"""Fixtures: one provider for all, one fleet of servers for each target."""

import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from tests.conformance.chat import CANARY, Chat
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.targets import TARGETS, Target

NewChat = Callable[..., Chat]


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test for each target of its module; the first is tried every day."""
    if "target" in metafunc.fixturenames:
        targets = getattr(metafunc.module, "VENDOR_TARGETS", TARGETS)
        marks = {TARGETS[0]: ()}
        rows = [
            pytest.param(target, id=target.name, marks=marks.get(target, pytest.mark.slow))
            for target in targets
        ]
        metafunc.parametrize("target", rows, indirect=True, scope="session")


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Target:
    return cast(Target, request.param)


@pytest.fixture(scope="session")
def fleet(
    target: Target, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    fleet = Fleet(target, tmp_path_factory.mktemp(target.name), provider.origin)
    yield fleet
    assert CANARY not in fleet.stop(), "a prompt or a reply is in a log"


@pytest.fixture
def server(fleet: Fleet) -> Server:
    """A server with default settings; a module that needs others has a fixture of this name."""
    return fleet.shared()


@pytest.fixture
def small(fleet: Fleet) -> Server:
    """A server whose limits are easily reached."""
    return fleet.shared(HISTORY_MESSAGES=4, MAX_PROMPT_CHARS=100, MAX_BODY_BYTES=1000)


@pytest.fixture
def crowded(fleet: Fleet) -> Server:
    """A server that keeps two sessions, with room for many turns to wait."""
    return fleet.shared(SESSION_CAPACITY=2, SESSION_QUEUE=20)


@pytest.fixture
def hasty(fleet: Fleet) -> Server:
    """A server whose turns have a second each."""
    return fleet.shared(TURN_TIMEOUT_SECONDS=1)


@pytest.fixture
def chat(server: Server, provider: Provider) -> Chat:
    return Chat(server, provider)


@pytest.fixture
def new_chat(server: Server, provider: Provider) -> NewChat:
    return lambda **who: Chat(server, provider, **who)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a step holds for; it is opened at the end of a test in any case."""
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture(autouse=True)
def nothing_that_a_strict_provider_refuses(provider: Provider) -> Iterator[None]:
    del provider.problems[:]
    yield
    assert provider.problems == []
