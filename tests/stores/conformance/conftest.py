"""Fixtures: those of the conformance suite, with a fleet whose sessions live in a store.

Each module here runs one of tests/conformance as it is. Where a store has other outcomes, it has a
test of the same name that asserts them; these are all differences.
"""

from collections.abc import Iterator

import pytest

from tests.conformance.chat import CANARY
from tests.conformance.conftest import (  # noqa: F401 (fixtures)
    chat,
    crowded,
    hasty,
    new_chat,
    server,
    small,
)
from tests.conformance.provider import Provider
from tests.conformance.targets import TARGETS, Target
from tests.stores.agents import StoreFleet
from tests.stores.conftest import SOAK
from tests.stores.stores import SENTINEL, STORES, Backing


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fleet" in metafunc.fixturenames:
        rows = [
            pytest.param((target, store), id=f"{target.name}-{store}", marks=SOAK)
            for target in TARGETS
            for store in STORES
        ]
        metafunc.parametrize("fleet", rows, indirect=True, scope="session")


@pytest.fixture(scope="session")
def fleet(
    request: pytest.FixtureRequest,
    backing: Backing,
    provider: Provider,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[StoreFleet]:
    target, store = request.param
    assert isinstance(target, Target)
    folder = tmp_path_factory.mktemp(f"{target.name}-{store}")
    fleet = StoreFleet(target, folder, provider.origin, backing, store)
    yield fleet
    log = fleet.stop()
    assert CANARY not in log, "a prompt or a reply is in a log"
    assert SENTINEL not in log, "a secret is in a log"
