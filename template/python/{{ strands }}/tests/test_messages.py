"""A copy of messages is a deep one, and only a span that is recorded gets them."""

from copy import deepcopy
from typing import Any

from strands.telemetry import get_tracer

from app.messages import Messages


def test_a_copy_shares_nothing_that_can_change() -> None:
    messages = Messages([{"content": [{"text": "Hi."}], "other": bytearray(b"a")}])
    copy = deepcopy(messages)
    assert (copy, type(copy)) == (messages, Messages)
    copy[0]["content"][0]["text"] = "Bye."
    copy[0]["other"][0] = 0
    copy.append({})
    assert messages == [{"content": [{"text": "Hi."}], "other": bytearray(b"a")}]


def test_a_span_that_nobody_records_costs_no_json() -> None:
    unreadable: Any = [None]
    assert not get_tracer().start_model_invoke_span(unreadable).is_recording()
