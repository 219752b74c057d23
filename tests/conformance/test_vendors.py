"""The same failures and turns, with the client of every other vendor that a render can have."""

import pytest

from tests.conformance.chat import Chat, echoed
from tests.conformance.steps import HANG
from tests.conformance.targets import VENDOR_TARGETS  # noqa: F401 (whose rows these tests run for)
from tests.conformance.test_failures import *  # noqa: F403
from tests.conformance.test_leaving import (
    test_a_client_of_json_that_leaves_while_text_flows,  # noqa: F401
    test_a_client_that_does_not_read_runs_into_the_turn_timeout,  # noqa: F401
)
from tests.conformance.test_turns import *  # noqa: F403

pytestmark = pytest.mark.slow


def test_a_call_that_has_begun_to_answer_ends_with_its_turn(chat: Chat) -> None:
    chat.say("One.")
    exchange = chat.start("Two.", ["Well, ", HANG])
    assert exchange.event() == ("message", "Well, ")
    exchange.leave()
    chat.gone("Two.")
    assert chat.recalled("Three.") == echoed("One.")
