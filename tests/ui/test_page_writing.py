"""The composer of the page, small windows, touch, and times that all tabs show."""

# ruff: noqa: F811 (fixtures)

import re
import threading
import time

import pytest
from playwright.sync_api import Browser, expect

from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.steps import HANG, Call, Hold, Refuse
from tests.ui.chat_page import unique
from tests.ui.test_page import pytest_generate_tests, server  # noqa: F401 (what pytest looks for)
from tests.ui.test_page_changes import Waiting, edit, gated_server, order, talk, waiting  # noqa: F401 (fixtures)
from tests.ui.visitor import Visitor

pytestmark = pytest.mark.page_only
FOCUSED = "document.activeElement.id || document.activeElement.localName"


@pytest.mark.parametrize("how", ["failed", "stopped"])
def test_a_prompt_that_was_not_kept_goes_back_into_the_composer(visitor: Visitor, how: str) -> None:
    text, page = unique("Wrong"), visitor.page
    visitor.say(text, [Refuse(400)] if how == "failed" else ["On", HANG])
    if how == "stopped":
        visitor.sees("On")
        page.get_by_role("button", name="Stop").click()
    visitor.failed("model_failed" if how == "failed" else "Stopped")
    page.locator(".failure").get_by_role("button", name="Edit").click()
    expect(page.locator(".user, .agent, .failure")).to_have_count(0)
    expect(page.get_by_label("Message")).to_have_value(text)
    page.keyboard.type(", corrected")
    page.keyboard.press("Enter")
    visitor.committed(1)
    expect(page.locator(".user p")).to_have_text([f"{text}, corrected"])
    page.reload()
    visitor.committed(1)
    expect(page.locator(".failure")).to_have_count(0)


def test_an_edit_that_failed_is_edited_in_its_place(visitor: Visitor) -> None:
    text, page = unique("Wrong"), visitor.page
    talk(visitor, "First.", "Second.")
    visitor.provider.script(text, [Refuse(400)])
    edit(page, 0, text)
    assert page.evaluate(FOCUSED) == "prompt"
    visitor.failed("model_failed")
    page.locator(".failure").get_by_role("button", name="Edit").click()
    expect(page.get_by_label("Edited message")).to_have_value(text)
    page.keyboard.type(", corrected")
    page.keyboard.press("Enter")
    visitor.committed(1)
    expect(page.locator(".user p")).to_have_text([f"{text}, corrected"])


def test_an_unsent_prompt_stays_in_the_composer_with_the_reason(visitor: Visitor) -> None:
    page, gate = visitor.page, threading.Event()
    message, reason = page.get_by_label("Message"), page.locator("#keys.reason")
    long = "x" * 200_000
    visitor.type(long)
    expect(reason).to_contain_text("Not sent: ")
    expect(message).to_have_value(long)
    expect(page.locator(".user, .failure")).to_have_count(0)
    visitor.say("Slowly.", ["It begins", Hold(gate), "."])
    expect(reason).to_have_count(0)
    visitor.sees("It begins")
    visitor.type("And then?")
    expect(reason).to_contain_text("wait for the reply, or stop it")
    gate.set()
    visitor.committed(1)
    expect(reason).to_have_count(0)
    page.keyboard.press("Enter")
    visitor.committed(2)


def test_each_session_keeps_its_draft_over_a_reload(visitor: Visitor) -> None:
    page = visitor.page
    message = page.get_by_label("Message")
    message.fill("Before the first turn")
    page.reload()
    expect(message).to_have_value("Before the first turn")
    talk(visitor, "First.")
    message.fill("Half a thought")
    page.get_by_role("button", name="New session").click()
    expect(message).to_have_value("")
    message.fill("Another")
    page.get_by_role("link", name="First.").click()
    expect(message).to_have_value("Half a thought")
    page.reload()
    visitor.committed(1)
    expect(message).to_have_value("Half a thought")


@pytest.mark.parametrize("size", [(740, 360), (640, 360), (320, 180)], ids=str)
def test_a_short_window_leaves_room_for_the_conversation(
    browser: Browser, server: Server, provider: Provider, size: tuple[int, int]
) -> None:
    """1280 x 720 at 200 and 400 % are the last two."""
    width, height = size
    for is_touch in (False, True):
        options = {"viewport": {"width": width, "height": height}, "has_touch": is_touch}
        visitor = Visitor(browser, server, provider, **options, is_mobile=is_touch)
        visitor.say("Lines.", ["word\n\n" * 30])
        visitor.committed(1)
        visitor.page.get_by_label("Message").fill("one\ntwo\nthree\nfour\nfive")
        box = visitor.page.locator("#transcript").bounding_box()
        assert box
        assert box["height"] >= 0.4 * height
        for name in ("Send", "End session"):
            button = visitor.page.get_by_role("button", name=name)
            button.scroll_into_view_if_needed()
            expect(button).to_be_in_viewport(ratio=0.98)
        overflow = "document.scrollingElement.scrollHeight - innerHeight"
        assert visitor.page.evaluate(overflow) <= 0
        visitor.leave()


def test_targets_are_large_enough_for_fingers(
    browser: Browser, server: Server, provider: Provider
) -> None:
    size = {"width": 390, "height": 740}
    visitor = Visitor(browser, server, provider, viewport=size, has_touch=True, is_mobile=True)
    call = Call("word_count", {"text": "a"})
    visitor.say("Touch.", ["Let me see. ", call], ["```py\nprint()\n```"])
    visitor.committed(1)
    visitor.say("Fail.", [Refuse(400)])
    visitor.failed("model_failed")
    small = visitor.page.locator("button, input, textarea, summary").evaluate_all(
        """(nodes) => nodes.filter((node) => node.checkVisibility()).flatMap((node) => {
            const { width, height } = node.getBoundingClientRect()
            return Math.min(width, height) < 44 ? [node.outerHTML] : []
        })"""
    )
    assert small == []
    visitor.leave()


def test_lists_of_arabic_have_their_markers_on_their_side(visitor: Visitor) -> None:
    visitor.say("Lists.", ["- مرحبا\n- سلام\n\n1. a\n\n> شكرا"])
    visitor.committed(1)
    direction = "(nodes) => nodes.map((node) => getComputedStyle(node).direction)"
    blocks = visitor.page.locator(".markdown :is(ul, ol, blockquote)")
    assert blocks.evaluate_all(direction) == ["rtl", "ltr", "rtl"]
    padding = "(nodes) => nodes.map((node) => parseInt(getComputedStyle(node).paddingRight))"
    right, left, quote = blocks.evaluate_all(padding)
    assert left == 0
    assert min(right, quote) > 10


@pytest.mark.full
def test_another_tab_has_tokens_and_times_and_the_wait_counts_for_no_tool(
    waiting: Waiting,
) -> None:
    page, visitor = waiting.page, waiting.visitor
    begun = time.monotonic()
    waiting.ask(order())
    page.reload()
    approve = page.get_by_role("button", name="Approve")
    approve.wait_for()
    time.sleep(3)
    approve.click()
    assert page.evaluate(FOCUSED) == "summary"
    visitor.committed(1)
    elapsed = time.monotonic() - begun
    state = page.locator(".state").text_content() or ""
    took = re.fullmatch(r"done · (?:(\d+) ms|(\d+\.\d) s)", state)
    assert took, state
    assert int(took[1] or 0) / 1000 + float(took[2] or 0) <= elapsed - 3
    shown = page.locator(".outcome, .state")
    other = visitor.context.new_page()
    other.goto(page.url)
    expect(other.locator(".outcome, .state")).to_have_text(shown.all_text_contents())
    assert "tokens in" in (shown.last.text_content() or "")
