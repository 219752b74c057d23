"""What a page shows of a session whose old messages became a summary."""

import pytest
from playwright.sync_api import Browser

from tests.conformance.conftest import (
    marks_of,
    nothing_that_a_strict_provider_refuses,  # noqa: F401 (a fixture)
)
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.targets import TARGETS, USUAL, compacting
from tests.ui.chat_page import LOAD, Page, edit, send, texts, unique
from tests.ui.visitor import Visitor

pytestmark = pytest.mark.slow
NOTE = "Turns 1 to 2 are gone: the agent has a summary of earlier messages."


def rows(usual: set[str]) -> pytest.MarkDecorator:
    found = [
        pytest.param(compacting(target, "ui"), id=target.name, marks=marks_of(target, usual))
        for target in TARGETS
    ]
    return pytest.mark.parametrize("target", found, indirect=True, scope="module")


@pytest.fixture
def server(fleet: Fleet) -> Server:
    """A server that cuts the fourth turn's history to the third turn."""
    return fleet.shared(UI=1, HISTORY_MESSAGES=4)


@rows(USUAL["turns"])
@pytest.mark.full
def test_the_history_of_a_page_begins_with_a_note(server: Server, provider: Provider) -> None:
    page, prompts = Page(server, sends="whole"), [unique(f"{at}") for at in range(4)]
    page.act(*map(send, prompts))
    note, *kept = page.history()
    assert (note["id"], note["role"], note["metadata"]) == ("summary", "system", {"turn": 2})
    shown = [text for prompt in prompts[2:] for text in (prompt, f"You said: {prompt}")]
    assert texts([note]) == [NOTE]
    assert texts(kept) == shown
    assert [message["metadata"]["turn"] for message in kept[1::2]] == [3, 4]
    edited = unique("edited")
    told = page.act(LOAD, edit(1, edited))[-1]
    assert texts(told["messages"])[1:] == [edited, f"You said: {edited}"]
    assert texts(page.history()) == [NOTE, edited, f"You said: {edited}"]
    shown_to_model = provider.calls_for(edited)[-1].history
    assert shown_to_model[0][1].startswith('<summary of="turns 1 to 2">')
    assert len(shown_to_model) == 3


@pytest.mark.full
@rows(set())
def test_the_page_shows_a_note_and_no_message_of_a_user(
    browser: Browser, server: Server, provider: Provider
) -> None:
    visitor = Visitor(browser, server, provider)
    for turn in range(1, 5):
        visitor.say(f"This is number {turn}.")
        visitor.committed(turn)
    visitor.page.reload()
    visitor.sees(NOTE)
    assert visitor.page.locator(".user").count() == 2
    assert visitor.page.get_by_text("<summary").count() == 0
    visitor.say("This is number 5.")
    visitor.committed(5)
    visitor.leave()
