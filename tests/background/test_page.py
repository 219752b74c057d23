"""The page with background turns: reloads, two tabs, and a list that shows the running turn."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.steps import Call, Hold, Step
from tests.conformance.targets import Target
from tests.ui.browser import launch
from tests.ui.gated import gated
from tests.ui.visitor import Visitor


@pytest.fixture(scope="module")
def pages(
    target: Target, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("pages")
    plain = replace(target, name=target.variant.partition("+")[0])
    fleet = Fleet(gated(plain, folder, "ui", "background"), folder, provider.origin)
    yield fleet
    fleet.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def visitor(browser: Browser, pages: Fleet, provider: Provider) -> Iterator[Visitor]:
    visitor = Visitor(browser, pages.shared(UI=1), provider)
    yield visitor
    visitor.leave()


def shown(page: Page) -> list[str]:
    """The texts of prompts and replies, in order.

    A tab in the background lays nothing out, so inner texts may be empty there.
    """
    texts = page.locator(".user p, .agent .markdown").all_text_contents()
    return [text.strip() for text in texts]


def committed(page: Page, turn: int) -> None:
    expect(page.locator(".outcome").last).to_contain_text(f"committed as turn {turn}")


def test_a_reload_costs_nothing(visitor: Visitor) -> None:
    gate = threading.Event()
    visitor.say("Tell me slowly.", ["It begins", Hold(gate), " and ends."])
    visitor.sees("It begins")
    for _ in range(3):
        visitor.page.reload()
        visitor.sees("It begins")
        assert shown(visitor.page) == ["Tell me slowly.", "It begins"]
        expect(visitor.page.get_by_role("button", name="Stop")).to_be_visible()
    gate.set()
    visitor.committed(1)
    assert shown(visitor.page) == ["Tell me slowly.", "It begins and ends."]
    assert len(visitor.provider.calls_for("Tell me slowly.")) == 1
    visitor.say("And then?", ["Nothing."])
    visitor.committed(2)


def test_two_tabs_follow_one_turn(visitor: Visitor) -> None:
    visitor.say("First.", ["Yes."])
    visitor.committed(1)
    other = visitor.context.new_page()
    other.goto(visitor.page.url)
    committed(other, 1)
    gate = threading.Event()
    visitor.say("Tell both.", ["It begins", Hold(gate), " and ends."])
    for page in (visitor.page, other):
        expect(page.get_by_text("It begins")).to_have_count(1)
        assert shown(page)[2:] == ["Tell both.", "It begins"]
    gate.set()
    for page in (visitor.page, other):
        committed(page, 2)
        assert shown(page)[2:] == ["Tell both.", "It begins and ends."]
    other.close()


def test_stop_in_one_tab_stops_the_turn_in_all(visitor: Visitor) -> None:
    visitor.say("First.", ["Yes."])
    visitor.committed(1)
    other = visitor.context.new_page()
    other.goto(visitor.page.url)
    committed(other, 1)
    visitor.say("For ever.", ["It begins", Hold(threading.Event())])
    expect(other.get_by_text("It begins")).to_have_count(1)
    other.get_by_role("button", name="Stop").click()
    for page in (visitor.page, other):
        expect(page.locator(".failure strong")).to_have_text("Stopped")
        expect(page.get_by_role("button", name="Send")).to_be_visible()
    call = visitor.provider.calls_for("For ever.")[-1]
    visitor.provider.wait("the end of the call", lambda: call.outcome == "gone")
    other.close()
    visitor.say("Again.", ["Yes, again."])
    visitor.committed(2)


def test_a_turn_that_cannot_be_stopped_is_followed_to_its_end(visitor: Visitor) -> None:
    def refuse(route: Route) -> None:
        if route.request.method == "DELETE":
            error = {"type": "store_unavailable", "message": "The store is down; retry later."}
            route.fulfill(status=503, json={"error": error})
        else:
            route.fallback()

    gate = threading.Event()
    visitor.say("Go on.", ["It begins", Hold(gate), " and ends."])
    visitor.sees("It begins")
    visitor.page.route("**/stream", refuse)
    visitor.page.get_by_role("button", name="Stop").click()
    visitor.sees("Not stopped: The store is down; retry later.")
    visitor.page.get_by_role("button", name="End session").click()
    visitor.page.locator("#confirm").click()
    expect(visitor.page.get_by_text("Not stopped")).to_have_count(3)  # one is for screen readers
    gate.set()
    visitor.committed(1)
    assert shown(visitor.page) == ["Go on.", "It begins and ends."]


def test_the_list_shows_the_running_turn_also_after_a_reload(visitor: Visitor) -> None:
    gate = threading.Event()
    visitor.say("Work.", ["It begins", Hold(gate), " and ends."])
    visitor.sees("It begins")
    visitor.page.get_by_role("button", name="New").click()
    link = visitor.page.get_by_role("link", name="Work.")
    expect(link).to_have_class("running")
    visitor.page.reload()
    link = visitor.page.get_by_role("link", name="Work.")
    expect(link).to_have_class("running")
    gate.set()
    link.click()
    visitor.committed(1)
    expect(link).not_to_have_class("running")


def test_a_mark_of_a_turn_that_ended_without_a_page_goes(visitor: Visitor) -> None:
    gate = threading.Event()
    visitor.say("Alone.", ["It begins", Hold(gate), " and ends."])
    visitor.sees("It begins")
    visitor.page.get_by_role("button", name="New").click()
    origin = visitor.page.url
    visitor.page.goto("about:blank")
    gate.set()
    visitor.page.goto(origin)
    link = visitor.page.get_by_role("link", name="Alone.")
    expect(link).not_to_have_class("running")
    link.click()
    visitor.committed(1)
    assert shown(visitor.page) == ["Alone.", "It begins and ends."]


def test_an_edited_turn_continues_after_a_reload(visitor: Visitor) -> None:
    visitor.say("First.", ["One."])
    visitor.committed(1)
    gate = threading.Event()
    visitor.provider.script("Second.", ["It begins", Hold(gate), " and ends."])
    visitor.page.get_by_role("button", name="Edit").click()
    visitor.page.get_by_label("Edited message").fill("Second.")
    visitor.page.keyboard.press("Enter")
    visitor.sees("It begins")
    visitor.page.reload()
    visitor.sees("It begins")
    assert shown(visitor.page) == ["Second.", "It begins"]
    gate.set()
    visitor.committed(1)
    assert shown(visitor.page) == ["Second.", "It begins and ends."]


def test_a_lost_connection_is_resumed(visitor: Visitor) -> None:
    gate = threading.Event()
    visitor.say("Hold on.", ["It begins", Hold(gate), " and ends."])
    visitor.sees("It begins")
    session = visitor.page.context.new_cdp_session(visitor.page)
    session.send("Network.enable")
    offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    session.send("Network.emulateNetworkConditions", {"offline": True, **offline})
    visitor.page.wait_for_timeout(500)
    session.send("Network.emulateNetworkConditions", {"offline": False, **offline})
    visitor.sees("It begins")
    gate.set()
    visitor.committed(1)
    assert shown(visitor.page) == ["Hold on.", "It begins and ends."]
    assert len(visitor.provider.calls_for("Hold on.")) == 1


def test_an_approved_call_continues_after_a_reload(visitor: Visitor) -> None:
    gate = threading.Event()
    steps: list[Step] = [
        ["Let me see. ", Call("delete_order", {"order_id": "7"})],
        ["It is", Hold(gate), " gone."],
    ]
    visitor.say("Delete order 7.", *steps)
    visitor.page.get_by_role("button", name="Approve").click()
    visitor.sees("It is")
    visitor.page.reload()
    visitor.sees("It is")
    gate.set()
    visitor.committed(1)
    assert shown(visitor.page) == ["Delete order 7.", "Let me see.", "It is gone."]
    assert len(visitor.provider.calls_for("Delete order 7.")) == 2
