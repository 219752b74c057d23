"""The page with background turns: a reload and a second tab follow one; Stop cancels it."""

# ruff: noqa: F811 (fixtures)

import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import Hold
from tests.ui.conftest import browser  # noqa: F401 (a fixture)
from tests.ui.visitor import Visitor


@pytest.fixture
def server(fleet: Fleet) -> Server:
    return fleet.shared(UI=1)


@pytest.fixture
def visitor(browser: Browser, server: Server, provider: Provider) -> Iterator[Visitor]:
    visitor = Visitor(browser, server, provider)
    yield visitor
    visitor.leave()


def test_a_reload_continues_the_reply(
    visitor: Visitor, server: Server, gate: threading.Event
) -> None:
    visitor.say("Hello", ["Slow, ", Hold(gate), "but sure."])
    visitor.sees("Slow, ")
    visitor.page.reload()
    visitor.sees("Slow, ")
    visitor.sees("Hello")
    gate.set()
    visitor.sees("Slow, but sure.")
    visitor.page.get_by_role("button", name="Retry").wait_for()
    assert visitor.kept(server) == ["Hello", "Slow, but sure."]
    assert visitor.page.locator(".failure").count() == 0
    visitor.say("Again")
    visitor.committed(2)


def test_a_second_tab_follows_the_same_turn(visitor: Visitor, gate: threading.Event) -> None:
    visitor.say("Hi", ["Slow, ", Hold(gate), "but sure."])
    visitor.sees("Slow, ")
    tab = visitor.context.new_page()
    tab.goto(f"{visitor.origin}/#{visitor.session}")
    tab.get_by_text("Slow, ").wait_for()
    tab.get_by_text("This message was sent from another page.").wait_for()
    gate.set()
    visitor.committed(1)
    tab.get_by_text("Slow, but sure.").wait_for()
    tab.locator("article", has_text="Hi").first.wait_for()


@pytest.mark.parametrize("reloads", [False, True])
def test_stop_cancels_the_turn(
    visitor: Visitor, server: Server, provider: Provider, gate: threading.Event, reloads: bool
) -> None:
    text = f"Stop me {reloads}"
    visitor.say(text, ["Slow, ", Hold(gate), "but sure."])
    visitor.sees("Slow, ")
    if reloads:
        visitor.page.reload()
        visitor.sees("Slow, ")
    visitor.page.get_by_role("button", name="Stop").click()
    call = provider.calls_for(text)[-1]
    provider.wait("an end of the call", lambda: call.outcome == "gone")
    assert visitor.kept(server) == []
    visitor.try_again()
    visitor.committed(1)
