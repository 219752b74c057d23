"""The page: turns that are edited or tried again, and calls that wait for an approval."""

# ruff: noqa: F811 (fixtures)

import json
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import CUT, HANG, Call, Hold
from tests.conformance.targets import Target
from tests.installed import packages
from tests.ui.chat_page import unique
from tests.ui.gated import gated
from tests.ui.test_page import pytest_generate_tests, server  # noqa: F401 (what pytest looks for)
from tests.ui.visitor import Visitor


def said(page: Page) -> list[str]:
    """The texts of prompts and replies, as they are shown."""
    return page.locator(".user p, .agent .body").all_text_contents()


def echoed(*prompts: str) -> list[str]:
    return [text for prompt in prompts for text in (prompt, f"You said: {prompt}")]


def talk(visitor: Visitor, *prompts: str) -> None:
    for turn, prompt in enumerate(prompts, 1):
        visitor.say(prompt)
        visitor.committed(turn)


def hasten(visitor: Visitor) -> None:
    """Let the page ask at once what it would ask in some seconds."""
    visitor.page.clock.fast_forward(13_000)


def hear(visitor: Visitor) -> None:
    """Hasten the page's next question and await the answer. A page that asks no more fails."""
    with visitor.page.expect_event("requestfinished", lambda it: "chat?id=" in it.url):
        hasten(visitor)
    visitor.page.evaluate("new Promise((resolve) => requestAnimationFrame(resolve))")


def edit(page: Page, at: int, text: str) -> None:
    page.get_by_role("button", name="Edit").nth(at).click()
    page.get_by_label("Edited message").fill(text)
    page.keyboard.press("Enter")


def test_a_message_is_edited(visitor: Visitor, server: Server, provider: Provider) -> None:
    talk(visitor, "One.", "Two.", "Three.")
    edit(visitor.page, 1, "Changed.")
    expect(visitor.page.locator(".cut")).to_have_text("Edited: 1 later turn was removed.")
    visitor.committed(2)
    assert said(visitor.page) == echoed("One.", "Changed.") == visitor.kept(server)
    assert [text for _, text, *_ in provider.calls_for("Changed.")[-1].history[-3:]] == [
        *echoed("One."),
        "Changed.",
    ]
    expect(visitor.page.locator("#sessions a")).to_contain_text("2 turns")
    visitor.page.reload()
    expect(visitor.page.locator(".cut")).to_have_text("Edited: 1 later turn was removed.")
    visitor.say("On.")
    visitor.committed(3)
    assert said(visitor.page) == echoed("One.", "Changed.", "On.") == visitor.kept(server)
    edit(visitor.page, 2, "On and on.")
    expect(visitor.page.locator(".cut").last).to_have_text("Edited.")
    visitor.committed(3)
    assert visitor.kept(server) == echoed("One.", "Changed.", "On and on.")


def test_a_reply_is_tried_again(visitor: Visitor, server: Server, provider: Provider) -> None:
    talk(visitor, "Uno.", "Due.", "Tre.")
    provider.script("Uno.", ["Another reply."])
    visitor.page.get_by_role("button", name="Retry").first.click()
    visitor.sees("Another reply.")
    expect(visitor.page.locator(".cut")).to_have_text("Tried again: 2 later turns were removed.")
    visitor.committed(1)
    assert said(visitor.page) == ["Uno.", "Another reply."] == visitor.kept(server)
    visitor.page.get_by_role("button", name="Retry").click()
    visitor.sees("You said: Uno.")
    expect(visitor.page.locator(".cut")).to_have_count(0)
    visitor.committed(1)
    assert said(visitor.page) == echoed("Uno.") == visitor.kept(server)


def test_an_edit_that_fails_changes_nothing(
    visitor: Visitor, server: Server, provider: Provider
) -> None:
    talk(visitor, "First.", "Second.")
    provider.script("Bad.", ["Half", CUT])
    edit(visitor.page, 0, "Bad.")
    visitor.failed("model_failed")
    assert said(visitor.page) == [*echoed("First.", "Second."), "Bad."]
    assert visitor.kept(server) == echoed("First.", "Second.")
    visitor.page.reload()
    visitor.failed("model_failed")
    visitor.try_again()
    visitor.sees("You said: Bad.")
    visitor.committed(1)
    assert said(visitor.page) == echoed("Bad.") == visitor.kept(server)
    provider.script("Bad.", ["Half", CUT])
    visitor.page.get_by_role("button", name="Retry").click()
    visitor.failed("model_failed")
    assert visitor.kept(server) == echoed("Bad.")
    provider.script("Slow.", ["Half", HANG])
    edit(visitor.page, 0, "Slow.")
    visitor.sees("Half")
    visitor.page.get_by_role("button", name="Stop").click()
    visitor.sees("Stopped")
    assert said(visitor.page) == [*echoed("Bad."), "Slow."]
    assert visitor.kept(server) == echoed("Bad.")


@pytest.mark.page_only
def test_an_edit_by_keyboard(visitor: Visitor, server: Server) -> None:
    talk(visitor, "Keys.")
    focused = "document.activeElement.textContent"
    visitor.page.get_by_role("button", name="Edit").focus()
    visitor.page.keyboard.press("Enter")
    assert visitor.page.evaluate("document.activeElement.ariaLabel") == "Edited message"
    visitor.page.keyboard.press("Escape")
    expect(visitor.page.get_by_label("Edited message")).to_have_count(0)
    assert visitor.page.evaluate(focused) == "Edit"
    visitor.page.keyboard.press("Enter")
    visitor.page.keyboard.press("Control+A")
    visitor.page.keyboard.type("Two")
    visitor.page.keyboard.press("Shift+Enter")
    visitor.page.keyboard.type("lines.")
    visitor.page.keyboard.press("Enter")
    visitor.sees("You said: Two")
    visitor.committed(1)
    assert visitor.kept(server) == echoed("Two\nlines.")


def test_a_stale_tab_reloads_and_says_so(
    visitor: Visitor, browser: Browser, server: Server, provider: Provider
) -> None:
    talk(visitor, "Here.", "There.")
    stale = Visitor(browser, server, provider)  # another browser is told of nothing
    visits = visitor.page.evaluate("Object.entries(localStorage)")
    stale.page.evaluate("(all) => all.forEach(([k, v]) => localStorage.setItem(k, v))", visits)
    stale.page.goto(visitor.page.url)
    stale.page.reload()
    stale.committed(2)
    visitor.say("Elsewhere.")
    visitor.committed(3)
    for change in ("edit", "retry", "send"):
        if change == "edit":
            edit(stale.page, 0, "Lost?")
        elif change == "retry":
            stale.page.get_by_role("button", name="Retry").first.click()
        else:
            stale.type("Late.")
        kept = visitor.kept(server)
        stale.sees(kept[-1])
        stale.sees("The session had other turns")
        assert said(stale.page)[: len(kept)] == kept
        visitor.say(f"After {change}.")
        visitor.sees(f"You said: After {change}.")
        visitor.committed(len(kept) // 2 + 1)
    stale.page.reload()
    stale.page.get_by_role("button", name="Try again").click()
    stale.sees("You said: Late.")
    assert visitor.kept(server)[-2:] == echoed("Late.")
    stale.leave()


@pytest.mark.page_only
def test_another_tab_follows_an_edit(visitor: Visitor) -> None:
    talk(visitor, "Both.")
    other = visitor.context.new_page()
    other.goto(visitor.page.url)
    expect(other.locator(".outcome")).to_contain_text("committed as turn 1")
    edit(visitor.page, 0, "Changed for both.")
    expect(other.locator(".user p")).to_have_text(["Changed for both."])


class Waiting:
    """A visitor of an agent whose tool `delete_order` needs an approval."""

    def __init__(self, visitor: Visitor, server: Server, provider: Provider) -> None:
        self.visitor, self.page, self.server = visitor, visitor.page, server
        self.provider = provider

    def ask(self, *orders: str) -> str:
        prompt = unique("Delete")
        calls = [Call("delete_order", {"order_id": order}) for order in orders]
        self.visitor.say(prompt, ["Wait. ", *calls], ["All done."])
        self.waits(*orders)
        return prompt

    def waits(self, *orders: str) -> None:
        expect(self.page.get_by_role("button", name="Approve delete_order")).to_have_count(
            len(orders)
        )
        for order in orders:
            self.visitor.sees(order)
        self.visitor.sees("This turn waits for your approval.")

    def ran(self, order: str) -> int:
        return self.server.log.count(f"<<ran {order}>>")

    def kept(self) -> list[str]:
        return [str(text) for text in self.visitor.kept(self.server)]


@pytest.fixture(scope="module")
def gated_server(
    target: Target, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp(f"gated-{target.name}")
    fleet = Fleet(gated(target, folder, "ui"), folder, provider.origin)
    yield fleet.fresh(UI=1)
    fleet.stop()


@pytest.fixture
def waiting(browser: Browser, gated_server: Server, provider: Provider) -> Iterator[Waiting]:
    visitor = Visitor(browser, gated_server, provider)
    yield Waiting(visitor, gated_server, provider)
    visitor.leave()


def order() -> str:
    return unique("o").split()[-1]


def test_a_call_is_approved(waiting: Waiting) -> None:
    number = order()
    prompt = waiting.ask(number)
    waiting.page.get_by_role("button", name="Approve").click()
    waiting.visitor.sees("All done.")
    waiting.visitor.committed(1)
    expect(waiting.page.locator(".tool .state")).to_contain_text("done")
    expect(waiting.page.get_by_text("waits for your approval")).to_have_count(0)
    assert waiting.ran(number) == 1
    assert waiting.kept() == [prompt, "Wait. All done."]
    waiting.visitor.say("And on.")
    waiting.visitor.committed(2)
    expect(waiting.page.locator(".user p")).to_have_text([prompt, "And on."])


def test_a_call_is_denied_with_a_reason(waiting: Waiting) -> None:
    numbers = [order(), order()]
    prompt = waiting.ask(*numbers)
    waiting.page.get_by_label("Reason for the denial").first.fill("not this one")
    waiting.page.keyboard.press("Enter")
    expect(waiting.page.locator(".tool .state").first).to_have_text("denied")
    assert waiting.page.evaluate("document.activeElement.ariaLabel") == "Approve delete_order"
    waiting.page.keyboard.press("Enter")
    waiting.visitor.committed(1)
    assert [waiting.ran(number) for number in numbers] == [0, 1]
    assert waiting.kept() == [prompt, "Wait. All done."]
    assert "not this one" in str(waiting.provider.calls_for(prompt)[-1].history)


def test_a_pending_approval_survives_a_reload_and_shows_in_another_tab(waiting: Waiting) -> None:
    number = order()
    prompt = waiting.ask(number)
    waiting.page.reload()
    waiting.waits(number)
    other = waiting.visitor.context.new_page()
    other.goto(waiting.page.url)
    other.get_by_role("button", name="Approve delete_order").click()
    expect(other.locator(".outcome")).to_contain_text("committed as turn 1")
    expect(waiting.page.locator(".outcome")).to_contain_text("committed as turn 1")
    expect(waiting.page.get_by_role("button", name="Approve")).to_have_count(0)
    assert waiting.ran(number) == 1
    waiting.page.reload()
    waiting.visitor.committed(1)
    assert said(waiting.page)[0] == prompt


@pytest.mark.full
def test_an_approved_turn_that_is_saved_after_its_stop_is_shown(waiting: Waiting) -> None:
    number, sent = order(), list[object]()
    waiting.page.clock.install()
    waiting.ask(number)
    approve = waiting.page.get_by_role("button", name="Approve delete_order")
    waiting.page.route("**/api/chat", lambda it: sent.append(it.request.post_data_json))
    with waiting.page.expect_request("**/api/chat"):
        approve.click()
    waiting.page.get_by_role("button", name="Stop").click()
    waiting.visitor.sees("Stopped")
    expect(approve).to_have_count(1)
    waiting.server.send(sent[0], path="/api/chat").reply()
    hasten(waiting.visitor)
    waiting.visitor.committed(1)
    expect(approve).to_have_count(0)
    assert waiting.ran(number) == 1


def test_another_message_drops_a_pending_approval(waiting: Waiting) -> None:
    number = order()
    waiting.ask(number)
    waiting.visitor.say("Never mind.")
    waiting.visitor.sees("The pending turn was dropped.")
    waiting.visitor.committed(1)
    assert waiting.kept() == echoed("Never mind.")
    assert said(waiting.page) == echoed("Never mind.")
    assert waiting.ran(number) == 0


def test_an_answer_whose_turn_fails(waiting: Waiting) -> None:
    prompt, number = unique("Delete"), order()
    call = Call("delete_order", {"order_id": number})
    waiting.visitor.say(prompt, [call], ["Half", CUT], ["Second time."])
    waiting.waits(number)
    waiting.page.get_by_role("button", name="Approve").click()
    waiting.visitor.failed("model_failed")
    assert waiting.kept() == []
    waiting.visitor.try_again()
    waiting.visitor.sees("Second time.")
    waiting.visitor.committed(1)
    assert waiting.kept() == [prompt, "Second time."]


@pytest.mark.page_only
def test_an_answer_without_a_reply_is_unknown_until_the_server_says_so(waiting: Waiting) -> None:
    """While its turn runs, the server has the calls that waited."""
    gate, passed = threading.Event(), []
    prompt, number = unique("Delete"), order()
    call = Call("delete_order", {"order_id": number})
    waiting.page.clock.install()
    waiting.visitor.say(prompt, ["Wait. ", call], ["All ", Hold(gate), "done."])
    waiting.waits(number)

    def give_up(route: Route) -> None:
        body = json.loads(route.request.post_data or "")
        passed.append(waiting.server.send(body, path="/api/chat"))
        route.abort()

    waiting.page.route("**/api/chat", give_up)
    waiting.page.get_by_role("button", name="Approve").click()
    for _ in range(2):
        waiting.visitor.sees("This turn may or may not have been saved. The page keeps asking")
        hear(waiting.visitor)
    expect(waiting.page.locator(".user p")).to_have_text([prompt])
    gate.set()
    waiting.provider.wait("the turn", lambda: "Wait. All done." in waiting.kept())
    hasten(waiting.visitor)
    waiting.visitor.committed(1)
    expect(waiting.page.locator(".failure, .notice")).to_have_count(0)
    assert waiting.ran(number) == 1


CHANGE = """() => {
    const key = Object.keys(localStorage).find((name) => name.endsWith(': sessions'))
    const [session, ...others] = JSON.parse(localStorage[key])
    localStorage[key] = JSON.stringify([{ ...session, changed: 'elsewhere' }, ...others])
}"""


@pytest.mark.page_only
def test_an_answer_is_shown_although_the_page_was_reading_the_turns(waiting: Waiting) -> None:
    """Another tab has changed the session, so the page reads its turns again."""
    gate, late = threading.Event(), list[Route]()
    call = Call("delete_order", {"order_id": order()})
    waiting.visitor.say(unique("Delete"), [call], ["All ", Hold(gate), "done."])
    approve = waiting.page.get_by_role("button", name="Approve")
    approve.wait_for()
    other = waiting.visitor.context.new_page()
    other.goto(f"{waiting.visitor.origin}/page.css")  # of the same origin
    waiting.page.route("**/api/chat?id=*", lambda route: late.append(route))
    other.evaluate(CHANGE)
    while not late:
        waiting.page.wait_for_timeout(20)
    approve.click()
    waiting.visitor.sees("All")
    with waiting.page.expect_event("requestfinished", lambda it: "chat?id=" in it.url):
        late[0].continue_()
    gate.set()
    waiting.visitor.committed(1)
    waiting.visitor.sees("All done.")


@pytest.mark.full
def test_an_edit_that_waits(waiting: Waiting) -> None:
    talk(waiting.visitor, "Erste.", "Zweite.", "Dritte.")
    number, prompt = order(), unique("Delete")
    waiting.provider.script(prompt, [Call("delete_order", {"order_id": number})], ["Gone."])
    edit(waiting.page, 1, prompt)
    waiting.waits(number)
    waiting.page.reload()
    waiting.waits(number)
    waiting.page.get_by_role("button", name="Approve").click()
    waiting.visitor.sees("Gone.")
    waiting.visitor.committed(2)
    assert waiting.kept() == [*echoed("Erste."), prompt, "Gone."]
    # The next one is dropped: then all that was committed is there.
    waiting.visitor.say("Vierte.")
    waiting.visitor.committed(3)
    waiting.provider.script(prompt, [Call("delete_order", {"order_id": number})], ["Gone."])
    waiting.page.get_by_role("button", name="Retry").nth(1).click()
    waiting.waits(number)
    waiting.visitor.say("Never mind.")
    waiting.visitor.sees("The pending turn was dropped.")
    waiting.visitor.committed(4)
    assert waiting.kept()[-4:] == echoed("Vierte.", "Never mind.")
    expect(waiting.page.locator(".user p")).to_have_text(
        ["Erste.", prompt, "Vierte.", "Never mind."]
    )


@pytest.mark.full
@pytest.mark.page_only
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_reports_nothing_for_approvals_and_edits(
    browser: Browser, gated_server: Server, provider: Provider, scheme: str
) -> None:
    modules = packages(
        json.dumps({"private": True, "dependencies": {"axe-core": "^4.13"}}).encode()
    )
    visitor = Visitor(browser, gated_server, provider, color_scheme=scheme, bypass_csp=True)
    waiting = Waiting(visitor, gated_server, provider)
    talk(visitor, "First.", "Second.")
    edit(visitor.page, 0, "Edited.")
    visitor.committed(1)
    waiting.ask(order())
    visitor.page.get_by_role("button", name="Edit").first.click()
    visitor.page.evaluate((modules / "axe-core" / "axe.min.js").read_text("utf-8"))
    found = visitor.page.evaluate("axe.run().then(({violations}) => violations)")
    assert found == [], json.dumps(found, indent=1)[:3000]
    visitor.leave()
