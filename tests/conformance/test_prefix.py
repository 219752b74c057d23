"""A provider's cache serves what a request has in common with the one before: its beginning."""

import json
from itertools import pairwise

import pytest

from tests.conformance.chat import Chat
from tests.conformance.prompt_cache import common

pytestmark = pytest.mark.about("turns")
TURNS = 100
FULL = 22  # the turn from which HISTORY_MESSAGES, 40 by default, is reached


@pytest.mark.full
def test_most_requests_of_a_long_session_begin_as_the_one_before(chat: Chat) -> None:
    told = []
    for number in range(1, TURNS + 1):
        prompt = f"This is prompt {number} of {TURNS}."
        chat.say(prompt)
        told.append(json.dumps(chat.history(chat.calls(prompt)[-1])))
    shares = [common(*pair) / len(pair[1]) for pair in pairwise(told)]
    late = shares[FULL - 2 :]
    assert sum(late) / len(late) >= 0.8, late
    assert min(late) < 0.1, "the history is cut at times"
