"""Each of two models is tried three times: the client's own two retries are the limit."""

import pytest

from tests.conformance.chat import Chat, assert_failed
from tests.conformance.client import JSON
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.steps import Refuse
from tests.conformance.test_fallback import FIRST, SECOND, VENDOR_TARGETS, say

pytestmark = pytest.mark.slow

__all__ = ["VENDOR_TARGETS"]  # for which each test here runs


def test_each_model_is_tried_three_times(fleet: Fleet, provider: Provider) -> None:
    chat = Chat(fleet.shared(MODEL_FALLBACK=SECOND), provider)
    reply = say(chat, "One.", [[Refuse(503)]], [Refuse(503)], headers=JSON)
    assert_failed(reply, 502, "model_failed", chat.session)
    assert [call.model for call in chat.calls("One.")] == [FIRST] * 3 + [SECOND] * 3


def test_a_second_model_that_recovers_answers(fleet: Fleet, provider: Provider) -> None:
    chat = Chat(fleet.shared(MODEL_FALLBACK=SECOND), provider)
    down = [Refuse(503, stays=False)]
    reply = say(chat, "One.", [[Refuse(503)]], down, down, ["At last."], headers=JSON)
    assert reply.json["reply"] == "At last."
