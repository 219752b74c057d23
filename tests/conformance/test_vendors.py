"""The same failures and turns, with the client of every other vendor that a render can have."""

from typing import Any

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
# What a usual run tries with the client of each vendor: a turn of every kind, and each way in which
# its wire says no or breaks, in the first call. Later calls and long waits are in the full run.
USUAL_FAILURES = {
    "refuses with 400",
    "is cut off before any text",
    "has an error before any text",
    "finishes empty",
    "is cut off",
    "has an error",
    "reaches its length",
    "is cut off in a tool call",
}
FULL_ONLY = {
    "test_only_a_provider_that_is_busy_makes_a_caller_try_again_later",
    "test_a_provider_that_closes_the_connection_without_a_word",
    "test_a_client_that_does_not_read_runs_into_the_turn_timeout",
}


def is_sample(test: str, parameters: dict[str, Any]) -> bool:
    """Whether a usual run has this test with these parameters."""
    is_first = test == "test_a_model_that_fails_in_its_first_call"
    how = parameters.get("how")
    return test not in FULL_ONLY and (how is None or (is_first and how in USUAL_FAILURES))


def test_a_call_that_has_begun_to_answer_ends_with_its_turn(chat: Chat) -> None:
    chat.say("One.")
    exchange = chat.start("Two.", ["Well, ", HANG])
    assert exchange.event() == ("message", "Well, ")
    exchange.leave()
    chat.gone("Two.")
    assert chat.recalled("Three.") == echoed("One.")
