"""HISTORY_MESSAGES: what the model is told of a long session."""

import pytest

from tests.conformance.chat import Chat, echoed
from tests.conformance.server import Server
from tests.conformance.steps import Call

COUNT = Call("word_count", {"text": "a b"})
COUNTED = [("call", "word_count", {"text": "a b"}), ("result", "2")]


@pytest.fixture
def server(small: Server) -> Server:
    return small


def test_the_oldest_turns_go_first_and_the_count_goes_on(chat: Chat) -> None:
    texts = ["One.", "Two.", "Three.", "Four."]
    assert [chat.say(text).turn for text in texts] == [1, 2, 3, 4]
    assert chat.recalled("Five.") == echoed("Three.", "Four.")
    assert chat.say("Six.").turn == 6


def test_turns_of_the_same_words_are_different_turns(chat: Chat) -> None:
    assert [chat.say("Again.").turn for _ in range(5)] == [1, 2, 3, 4, 5]
    assert chat.recalled() == echoed("Again."), "six messages are cut to at most two"


def test_a_history_that_just_fits_is_whole(chat: Chat) -> None:
    chat.say("One.")
    chat.say("Two.")
    assert chat.recalled() == echoed("One.", "Two.")


def test_a_turn_with_a_tool_that_just_fits_is_whole(chat: Chat) -> None:
    chat.say("One.")
    chat.say("Count.", [COUNT], ["Two."])  # four messages
    assert chat.recalled() == [("user", "Count."), *COUNTED, ("assistant", "Two.")]


def test_a_turn_is_never_cut_in_the_middle(chat: Chat) -> None:
    chat.say("Count.", [COUNT], ["Two."])  # four messages
    chat.say("Three.")  # two more: the cut can only be in front of this one
    assert chat.recalled() == echoed("Three.")


def test_a_turn_longer_than_the_window_is_kept_whole(chat: Chat) -> None:
    chat.say("One.")
    chat.say("Count.", ["Hm. ", COUNT], [COUNT], [COUNT], ["Two."])  # eight messages
    assert chat.recalled("And now?") == [
        ("user", "Count."),
        ("assistant", "Hm. "),
        *(COUNTED * 3),
        ("assistant", "Two."),
    ]
    assert chat.recalled("And then?") == echoed("And now?")


def test_the_running_turn_is_not_counted(chat: Chat) -> None:
    chat.say("One.")
    chat.say("Two.")
    chat.say("Count.", [COUNT], [COUNT], ["Two."])
    last = chat.history(chat.calls("Count.")[-1])
    assert last == [*echoed("One.", "Two."), ("user", "Count."), *(COUNTED * 2)]


def test_a_failed_turn_takes_nothing_out_of_the_window(chat: Chat) -> None:
    chat.say("One.")
    chat.say("Two.")
    chat.say("Three.", [])
    assert chat.recalled() == echoed("One.", "Two.")
