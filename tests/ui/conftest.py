"""Fixtures: Chromium, driven by Playwright, and the servers of each target with UI=1."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.targets import Target
from tests.ui.browser import launch
from tests.ui.visitor import Visitor


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "page_only: it is the same whatever server sends the page")


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest) -> Target:
    assert isinstance(request.param, Target)
    return request.param


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


@pytest.fixture(scope="module")
def fleet(
    target: Target, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    fleet = Fleet(target, tmp_path_factory.mktemp(target.name), provider.origin)
    yield fleet
    fleet.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the whole session: while it is open, no other test of the process can use asyncio."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def visitor(browser: Browser, fleet: Fleet, provider: Provider) -> Iterator[Visitor]:
    visitor = Visitor(browser, fleet.shared(UI=1), provider)
    yield visitor
    visitor.leave()
