"""A copy of messages is a deep one."""

from copy import deepcopy

from app.messages import Messages


def test_a_copy_shares_nothing_that_can_change() -> None:
    messages = Messages([{"content": [{"text": "Hi."}], "other": bytearray(b"a")}])
    copy = deepcopy(messages)
    assert (copy, type(copy)) == (messages, Messages)
    copy[0]["content"][0]["text"] = "Bye."
    copy[0]["other"][0] = 0
    copy.append({})
    assert messages == [{"content": [{"text": "Hi."}], "other": bytearray(b"a")}]
