"""Fixtures: one provider for all, one fleet of servers for each target.

Each test here runs for each target, and for each target with its sessions in each store, but for
those of a module with VENDOR_TARGETS, which have these. A usual run tries what a test is `about`
where it can differ, and leaves the rest to the full run. A test whose outcome depends on where
sessions live asks `target.store`; one that needs a store, or two processes on it, is `stored`.

Where sessions live changes no rule about requests or turns. Targets with a store therefore share
the rows of such a test: each has some of them, and the plain targets have all.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import cast
from zlib import crc32

import pytest

from tests.conformance.chat import CANARY, Chat
from tests.conformance.provider import Provider
from tests.conformance.replay import Replay
from tests.conformance.server import Fleet, Server
from tests.conformance.targets import (
    STORED,
    TARGETS,
    USUAL,
    VENDOR_TARGETS,
    Target,
    compacting,
    with_own_agent,
)
from tests.matrix import in_turn
from tests.stores.stores import SENTINEL, Backing
from tests.support.rows import collected

# What a test is about where targets with a store share its rows.
IN_TURN = {"the server", "turns"}

# What tries a row of a test besides the first target: each framework and each language.
HALVES = [{"vercel-typescript"}, {"strands-typescript", "vercel-python"}]
NewChat = Callable[..., Chat]
OpenFleet = Callable[[Target], AbstractContextManager[Fleet]]


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


@pytest.fixture(scope="session")
def replay() -> Iterator[Replay]:
    replay = Replay()
    yield replay
    replay.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test for each target of its module; the first is tried every day."""
    if "target" in metafunc.fixturenames:
        targets = getattr(metafunc.module, "VENDOR_TARGETS", [*TARGETS, *STORED])
        usual = usual_of(metafunc.definition)
        if metafunc.definition.get_closest_marker("stored"):
            targets, usual = STORED, USUAL["sessions"]
        rows = [
            pytest.param(target, id=target.name, marks=marks_of(target, usual))
            for target in targets
        ]
        metafunc.parametrize(
            "target", collected(metafunc.config, rows), indirect=True, scope="session"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave each target with a store its share of the rows of a test."""
    tests: dict[str, list[tuple[pytest.Item, str, int]]] = defaultdict(list)
    for item in items:
        target = item.callspec.params.get("target") if hasattr(item, "callspec") else None
        if target in STORED and is_shared(item):
            test, _, row = item.nodeid.partition("[")
            tests[test].append((item, row.replace(target.name, "", 1), STORED.index(target)))
    left_out = set[pytest.Item]()
    for shared in tests.values():
        rows = [*dict.fromkeys(row for _, row, _ in shared)]
        variants = [*dict.fromkeys(variant for _, _, variant in shared)]
        for item, row, variant in shared:
            place = variants.index(variant), rows.index(row)
            if not in_turn(*place, variants=len(variants), rows=len(rows)):
                left_out.add(item)
    items[:] = [item for item in items if item not in left_out]


def is_shared(test: pytest.Item) -> bool:
    """Whether the targets with a store share the rows of a test."""
    return what_about(test) in IN_TURN and not test.get_closest_marker("stored")


def what_about(test: pytest.Item) -> str:
    """What a test is about."""
    about = test.get_closest_marker("about")
    return about.args[0] if about else "all"


def usual_of(test: pytest.Item) -> set[str]:
    """The names of the targets that a usual run has of a test."""
    return USUAL[what_about(test)]


def marks_of(target: Target, usual: set[str]) -> list[pytest.MarkDecorator]:
    """When a target is tried: every day, in the usual run, or in the full one only."""
    if target == TARGETS[0]:
        return []
    is_usual = target.name in usual | {vendor.name for vendor in VENDOR_TARGETS}
    return [pytest.mark.slow] if is_usual else [pytest.mark.slow, pytest.mark.full]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave tests to the full run: those for which `is_sample` of their module is false.

    A usual run that tries a test with all targets has each of its rows with the first target and,
    in turn, with the sets of HALVES.
    """
    assert isinstance(item, pytest.Function)
    values = item.callspec.params if hasattr(item, "callspec") else {}
    is_sample = getattr(item.module, "is_sample", None)
    if is_sample and not is_sample(item.originalname, values):
        item.add_marker("full")
    target = values.get("target")
    if target in TARGETS[1:] and len(values) > 1 and usual_of(item) >= USUAL["turns"]:
        row = item.name.replace(target.name, "")
        if target.name not in HALVES[crc32(row.encode()) % len(HALVES)]:
            item.add_marker("full")


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Target:
    return cast(Target, request.param)


@pytest.fixture(scope="session")
def backing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backing]:
    """The servers that keep sessions; each starts when it is asked for."""
    with ExitStack() as stack:
        yield Backing(tmp_path_factory.mktemp("backing"), stack)


@pytest.fixture(scope="session")
def open_fleet(
    request: pytest.FixtureRequest, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> OpenFleet:
    @contextmanager
    def open_fleet(target: Target) -> Iterator[Fleet]:
        folder = tmp_path_factory.mktemp(target.name)
        if target.store:
            from tests.stores.agents import StoreFleet  # which is made of this suite's own parts

            backing = request.getfixturevalue("backing")
            fleet: Fleet = StoreFleet(target, folder, provider.origin, backing, target.store)
        else:
            fleet = Fleet(target, folder, provider.origin)
        yield fleet
        log = fleet.stop()
        provider.forget()
        assert CANARY not in log, "a prompt or a reply is in a log"
        assert SENTINEL not in log, "a secret is in a log"

    return open_fleet


@pytest.fixture(scope="session")
def fleet(target: Target, open_fleet: OpenFleet) -> Iterator[Fleet]:
    with open_fleet(target) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def own_agents(target: Target, open_fleet: OpenFleet) -> Iterator[Fleet]:
    """Servers whose agent has tools that know their turn."""
    with open_fleet(with_own_agent(target)) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def approvals(target: Target, open_fleet: OpenFleet) -> Iterator[Fleet]:
    """Servers whose agent has a tool that asks for an approval, rendered to wait for it."""
    with open_fleet(with_own_agent(target, approval=True)) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def compaction(target: Target, open_fleet: OpenFleet) -> Iterator[Fleet]:
    """Servers that summarize what their sessions no longer hold."""
    with open_fleet(compacting(target)) as fleet:
        yield fleet


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
def generous(fleet: Fleet) -> Server:
    """A server that reads as much of a reply as its client does."""
    return fleet.shared(MAX_REPLY_BYTES=1_000_000_000)


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
    problems = [*provider.problems]
    del provider.problems[:]
    assert problems == []
