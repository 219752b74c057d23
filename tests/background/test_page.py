"""The page with background turns: reloads, two tabs, and a list that shows the running turn."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, FilePayload, Page, Route, expect, sync_playwright

from tests.background.test_use_chat import has_only_an_id
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.steps import Call, Flood, Hold, Step
from tests.conformance.targets import Target, with_own_agent
from tests.stores.agents import Agents, Replica
from tests.stores.servers import wait_for
from tests.stores.stores import Backing
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
    provider.forget()  # another target may have the same prompts
    visitor = Visitor(browser, pages.shared(UI=1), provider)
    yield visitor
    visitor.leave()


@pytest.fixture
def replicas(
    target: Target,
    backing: Backing,
    provider: Provider,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Replica, Replica]]:
    """Two replicas with the page, whose agent has a tool that needs an approval."""
    answers = (("model", "openai-compatible"), ("extras", "[approval,background,ui]"))
    own = replace(with_own_agent(target, approval=True), answers=answers)
    agents = Agents(own, backing, tmp_path_factory.mktemp("approving"), provider, "valkey")
    home = agents.home()
    provider.forget()  # another test may have the same prompts
    yield agents.fresh(home, UI=1), agents.fresh(home, UI=1)
    agents.stop()


def shown(page: Page) -> list[str]:
    """The texts of prompts and replies, in order.

    A tab in the background lays nothing out, so inner texts may be empty there.
    """
    texts = page.locator(".user p, .agent .markdown").all_text_contents()
    return [text.strip() for text in texts]


def committed(page: Page, turn: int) -> None:
    expect(page.locator(".outcome").last).to_contain_text(f"committed as turn {turn}")


def change(page: Page, text: str) -> None:
    """Edit the prompt of the only turn."""
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Edited message").fill(text)
    page.keyboard.press("Enter")


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


def test_a_tab_whose_replica_does_not_know_a_new_turn_asks_again(visitor: Visitor) -> None:
    visitor.say("First.", ["Yes."])
    visitor.committed(1)
    other = visitor.context.new_page()
    other.goto(visitor.page.url)
    committed(other, 1)
    gate = threading.Event()
    other.route("**/stream", lambda route: route.fulfill(status=204), times=1)
    visitor.say("Tell both.", ["It begins", Hold(gate), " and ends."])
    expect(other.get_by_text("It begins")).to_have_count(1)
    gate.set()
    committed(other, 2)
    assert shown(other)[2:] == ["Tell both.", "It begins and ends."]


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


def accept(route: Route) -> None:
    """Accept a stop as another replica does: the replica of the turn hears of it later."""
    if route.request.method == "DELETE":
        route.fulfill(status=204)
    else:
        route.fallback()


def test_a_turn_that_is_saved_before_its_replica_stops_it_is_shown(visitor: Visitor) -> None:
    gate = threading.Event()
    visitor.say("Stop soon.", ["It begins", Hold(gate), " and ends."])
    visitor.sees("It begins")
    visitor.page.route("**/stream", accept)
    visitor.page.evaluate(
        """new MutationObserver(() => {
            window.hasFailed ||= document.querySelector('.failure') !== null
        }).observe(document.body, { childList: true, subtree: true })"""
    )
    with visitor.page.expect_response("**/stream"):
        visitor.page.get_by_role("button", name="Stop").click()
    gate.set()
    visitor.committed(1)
    assert not visitor.page.evaluate("Boolean(window.hasFailed)")
    assert shown(visitor.page) == ["Stop soon.", "It begins and ends."]


@pytest.mark.parametrize(
    "is_edit", [True, pytest.param(False, marks=pytest.mark.full)], ids=["edit", "new"]
)
def test_a_turn_that_is_saved_after_it_was_stopped_is_shown(
    visitor: Visitor, is_edit: bool
) -> None:
    visitor.provider.script(
        "Stop late.", ["It begins", Hold(gate := threading.Event()), " and ends."]
    )
    if is_edit:
        visitor.say("Begin.", ["Yes."])
        visitor.committed(1)
        change(visitor.page, "Stop late.")
    else:
        visitor.type("Stop late.")
    visitor.sees("It begins")
    visitor.page.route("**/stream", accept)
    visitor.page.get_by_role("button", name="Stop").click()
    visitor.sees("Stopped")
    visitor.sees("This turn may or may not have been saved.")
    expect(visitor.page.get_by_text("this session is unchanged")).to_have_count(0)
    gate.set()
    visitor.committed(1)
    expect(visitor.page.locator(".failure")).to_have_count(0)
    assert shown(visitor.page) == ["Stop late.", "It begins and ends."]


# Each POST gets a stream to which the test adds events.
FEED = """window.fetch = ((fetch) => (url, options) => {
    if (options?.method !== 'POST') return fetch(url, options)
    const body = new ReadableStream({ start: (stream) => (window.stream = stream) })
    return Promise.resolve(new Response(body.pipeThrough(new TextEncoderStream())))
})(window.fetch)"""


def test_a_stopped_turn_whose_save_fails_may_be_saved(visitor: Visitor) -> None:
    def feed(type: str, **part: str) -> None:
        data = json.dumps({"type": type, **part})
        visitor.page.evaluate("(data) => stream.enqueue(`data: ${data}\n\n`)", data)

    visitor.page.evaluate(FEED)
    visitor.type("Stop while it is saved.")
    visitor.page.wait_for_function("window.stream")
    feed("start", messageId="fed")
    feed("text-start", id="text")
    feed("text-delta", id="text", delta="It is all there.")
    visitor.sees("It is all there.")
    visitor.page.route("**/stream", accept)
    with visitor.page.expect_response("**/stream"):
        visitor.page.get_by_role("button", name="Stop").click()
    feed("error", errorText="store_unavailable: The store is down; retry later.")
    visitor.page.evaluate("stream.close()")
    visitor.sees("store_unavailable")
    visitor.sees("This turn may or may not have been saved.")
    expect(visitor.page.get_by_text("this session is unchanged")).to_have_count(0)


@pytest.mark.parametrize(
    "is_shared",
    [False, pytest.param(True, marks=pytest.mark.full)],
    ids=["one replica", "with S3"],
)
def test_a_stop_during_the_upload_runs_nothing(visitor: Visitor, is_shared: bool) -> None:
    def refuse(route: Route) -> None:
        if route.request.method == "DELETE" and is_shared:
            error = {"type": "turn_elsewhere", "message": "Another replica may run this turn."}
            route.fulfill(status=409, json={"error": error})
        else:
            route.fallback()

    visitor.page.route("**/stream", refuse)
    network = visitor.context.new_cdp_session(visitor.page)
    network.send("Network.enable")

    def limit(bytes_per_second: int) -> None:
        rates = {"downloadThroughput": -1, "uploadThroughput": bytes_per_second}
        network.send("Network.emulateNetworkConditions", {"offline": False, "latency": 0, **rates})

    limit(200_000)
    text = FilePayload(name="long.txt", mimeType="text/plain", buffer=b"x" * 200_000)
    visitor.page.locator("#picker").set_input_files(text)
    visitor.page.locator("#attachments bdi").wait_for()
    with visitor.page.expect_request("**/api/chat"):
        visitor.type("Read this.")
    visitor.page.get_by_role("button", name="Stop").click()
    visitor.failed("Stopped")
    expect(visitor.page.get_by_text("Not stopped")).to_have_count(0)
    limit(-1)
    visitor.say("Another.", ["Yes."])
    visitor.committed(1)
    assert visitor.provider.calls_for("Read this.") == []


def test_a_page_without_the_agents_description_stops_a_turn(visitor: Visitor) -> None:
    visitor.page.route("**/agent.json", lambda route: route.abort(), times=1)
    visitor.page.reload()
    visitor.say("For long.", ["It begins", Hold(threading.Event())])
    visitor.sees("It begins")
    visitor.page.get_by_role("button", name="Stop").click()
    visitor.failed("Stopped")
    call = visitor.provider.calls_for("For long.")[-1]
    visitor.provider.wait("the end of the call", lambda: call.outcome == "gone")


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
    calls = visitor.provider.calls_for("Alone.")
    visitor.provider.wait("the end", lambda: calls[-1].outcome == "finished")
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
    change(visitor.page, "Second.")
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


def test_an_approved_call_continues_at_another_replica(
    replicas: tuple[Replica, Replica], browser: Browser, provider: Provider
) -> None:
    """Also where the approved turn replaces a turn: the other replica still has that one."""
    here, there = ("{}:{}".format(*replica.server.address) for replica in replicas)

    def divide(route: Route) -> None:
        if route.request.method == "POST":
            route.fallback()
        else:
            route.continue_(url=route.request.url.replace(here, there))

    visitor = Visitor(browser, replicas[0].server, provider)
    visitor.context.route(re.compile("/api/chat"), divide)
    other = visitor.context.new_page()
    for number in (7, 8):
        gate, prompt = threading.Event(), f"Delete order {number}."
        call = Call("delete_order", {"order_id": str(number)})
        provider.script(prompt, ["Let me see. ", call], ["It is", Hold(gate), " gone."])
        if number == 7:
            visitor.type(prompt)
        else:
            change(visitor.page, prompt)
        approve = [page.get_by_role("button", name="Approve") for page in (visitor.page, other)]
        if number == 8:
            expect(approve[1]).to_be_visible()
        approve[0].click()
        visitor.sees("It is")
        visitor.page.reload()
        other.goto(visitor.page.url)
        other.reload()
        texts = ".user p, .agent .markdown"
        for page in (visitor.page, other):
            expect(page.locator(texts)).to_have_text([prompt, "It is"])
            expect(page.get_by_role("button", name="Stop")).to_be_visible()
            expect(page.locator(".failure")).to_have_count(0)
        gate.set()
        for page in (visitor.page, other):
            expect(page.locator(texts)).to_have_text([prompt, "Let me see.", "It is gone."])
            committed(page, 1)
        assert len(provider.calls_for(prompt)) == 2
    visitor.context.close()
    assert visitor.problems == []


@pytest.mark.parametrize("how", ["saved", "saved after a refusal", "stopped"])
def test_a_page_that_missed_events_shows_that_the_turn_runs(
    pages: Fleet, browser: Browser, provider: Provider, how: str
) -> None:
    server = pages.shared(UI=1, MAX_EVENT_BYTES=1024)
    missed = {"type": "error", "errorText": "events_lost: The first events were dropped."}
    passed = []

    def miss(route: Route) -> None:
        turn = json.loads(route.request.post_data or "")
        passed.append(server.send(turn, path="/api/chat"))
        path = f"/api/chat/{turn['id']}/stream"
        wait_for("a dropped event", lambda: has_only_an_id(server, path))
        body = f"data: {json.dumps(missed)}\n\ndata: [DONE]\n\n"
        route.fulfill(body=body, content_type="text/event-stream")

    gate, prompt = threading.Event(), f"Tell me all, {how}."
    visitor = Visitor(browser, server, provider)
    visitor.page.route("**/api/chat", miss)
    provider.script(prompt, [Flood(100, 100), Hold(gate), "\nThe end."])
    stop = visitor.page.get_by_role("button", name="Stop")
    acts: list[Callable[[], object]] = [lambda: visitor.type(prompt), visitor.page.reload]
    for act in acts:
        with visitor.page.expect_event("requestfinished", lambda it: "chat?id=" in it.url):
            act()
        visitor.page.evaluate("new Promise((resolve) => requestAnimationFrame(resolve))")
        visitor.sees("Waiting for the reply")
        expect(stop).to_be_visible()
        expect(visitor.page.locator(".failure")).to_have_count(0)
        assert shown(visitor.page) == [prompt]
    (call,) = provider.calls_for(prompt)
    if how == "saved after a refusal":
        error = {"type": "draining", "message": "This replica is shutting down; retry later."}
        refuse = {"status": 503, "json": {"error": error}}
        visitor.page.route("**/stream", lambda route: route.fulfill(**refuse), times=1)
        with visitor.page.expect_response(lambda it: it.status == 503):
            pass
        visitor.sees("Waiting for the reply")
        expect(visitor.page.get_by_text("this session is unchanged")).to_have_count(0)
    if how != "stopped":
        gate.set()
        visitor.committed(1)
        expect(visitor.page.locator(".failure")).to_have_count(0)
        visitor.sees("The end.")
    else:
        stop.click()
        visitor.failed("Stopped")
        provider.wait("the end of the call", lambda: call.outcome == "gone")
        assert visitor.kept(server) == []
    visitor.leave()
