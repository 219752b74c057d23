"""The same failures and turns, with the client of every other vendor that a render can have."""

import re
from typing import Any

import pytest

from tests.conformance.chat import Chat, assert_failed, echoed
from tests.conformance.client import JSON
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.steps import HANG, Refuse
from tests.conformance.targets import VENDOR_TARGETS  # noqa: F401 (whose rows these tests run for)
from tests.conformance.test_failures import *  # noqa: F403
from tests.conformance.test_leaving import (
    test_a_client_of_json_that_leaves_while_text_flows,  # noqa: F401
    test_a_client_that_does_not_read_runs_into_the_turn_timeout,  # noqa: F401
)
from tests.conformance.test_turns import *  # noqa: F403
from tests.stores.servers import wait_for

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


@pytest.mark.full
@pytest.mark.rows(where=lambda row: row["target"].name != "vercel-python-gateway")
def test_the_wait_of_a_busy_provider_reaches_the_caller(fleet: Fleet, provider: Provider) -> None:
    """Not by the gateway's client in Python: it drops the headers of an error."""
    chat = Chat(fleet.shared(TURN_TIMEOUT_SECONDS=2), provider)
    reply = chat.say("One.", [Refuse(429, "ThrottlingException", after=40)], headers=JSON)
    assert_failed(reply, 504, "turn_timeout", chat.session)
    assert 10 < int(reply.headers["Retry-After"]) <= 40
    line = f"session {chat.session}: .*detail=after HTTP 429\n"
    wait_for("the line of the turn", lambda: re.search(line, chat.server.log))
