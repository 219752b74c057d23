"""The reasoning of a model: the caller sees it as it streams, and nobody else gets it."""

from typing import Any

import pytest

from tests.conformance import targets
from tests.conformance.chat import Chat, assert_done
from tests.conformance.client import JSON
from tests.conformance.server import Fleet
from tests.conformance.steps import CUT, Think

pytestmark = pytest.mark.about("turns")
VENDOR_TARGETS = [*targets.TARGETS, *targets.VENDOR_TARGETS]


def is_sample(test: str, parameters: dict[str, Any]) -> bool:
    """Whether a usual run has this: only events depend on the vendor's client."""
    return "an_event_before" in test or parameters["target"] in targets.TARGETS


def test_reasoning_is_an_event_before_the_reply(chat: Chat) -> None:
    reply = chat.say("Hello.", [Think("I wonder."), Think(" Yes: \U0001f600"), "Hi."])
    parts = [data for name, data in reply.events if name == "reasoning"]
    assert "".join(parts) == "I wonder. Yes: \U0001f600"
    assert [name for name, _ in reply.events][-2:] == ["message", "done"]
    assert reply.text == "Hi."
    assert chat.recalled() == [("user", "Hello."), ("assistant", "Hi.")]


def test_a_reply_in_json_has_no_reasoning(chat: Chat) -> None:
    reply = chat.say("Hello.", [Think("I wonder."), "Hi."], headers=JSON)
    assert reply.json["reply"] == "Hi."
    assert "wonder" not in reply.body.decode()


def test_the_log_has_no_reasoning(chat: Chat) -> None:
    assert chat.say("Hello.", [Think("I ponder."), "Hi."]).turn == 1
    chat.say("Again.", [Think("I ponder."), CUT])
    assert "ponder" not in chat.server.log


def test_a_turn_that_fails_after_reasoning_ends_with_an_error_event(chat: Chat) -> None:
    reply = chat.say("Hello.", [Think("I wonder."), CUT])
    assert [name for name, _ in reply.events] == ["reasoning", "error"]
    assert chat.recalled() == []


def test_reasoning_can_be_turned_off(fleet: Fleet, chat: Chat) -> None:
    quiet = chat.elsewhere(fleet.shared(REASONING=0))
    assert_done(quiet.say("Hello.", [Think("I wonder."), "Hi."]), ["Hi."], 1, quiet.session)
