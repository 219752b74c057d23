"""Many writers on one session: it ends with exactly the turns that succeeded."""

import threading

import pytest

from tests.conformance.chat import Chat
from tests.conformance.client import JSON
from tests.stores.agents import Replica

WRITERS = 8


def write(chats: list[Chat], turns: int) -> dict[str, int]:
    """Let each chat say that many texts, all at the same time; return those that became a turn."""
    kept: dict[str, int] = {}
    wrong: list[object] = []

    def run(number: int, chat: Chat) -> None:
        for turn in range(turns):
            text = f"Writer {number}, turn {turn}."
            reply = chat.say(text, headers=JSON)
            if reply.status == 200:
                kept[text] = reply.json["turn"]
            elif (reply.status, reply.error) != (409, "session_conflict"):
                wrong.append(reply)

    threads = [threading.Thread(target=run, args=row) for row in enumerate(chats)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()  # each of its calls is bounded
    assert wrong == []
    return kept


def assert_kept(kept: dict[str, int], chat: Chat, replica: Replica) -> None:
    assert sorted(kept.values()) == list(range(1, len(kept) + 1)), (
        "a turn was lost, or one too many"
    )
    assert replica.home.store.turns(chat.session) == len(kept)
    texts = [text for text, turn in sorted(kept.items(), key=lambda row: row[1])]
    told = [entry[1] for entry in chat.recalled() if entry[0] == "user"]
    assert min(len(texts), 10) <= len(told) <= 20
    assert told == texts[-len(told) :]


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.one_each
def test_eight_writers_of_fifty_turns_each(chat: Chat, beside: Chat, one: Replica) -> None:
    kept = write([chat, beside] * (WRITERS // 2), 50)
    assert len(kept) >= 50, "one of two always wins"
    assert_kept(kept, chat, one)


@pytest.mark.spread
def test_eight_writers_of_five_turns_each(chat: Chat, beside: Chat, one: Replica) -> None:
    kept = write([chat, beside] * (WRITERS // 2), 5)
    assert len(kept) >= 5, "one of two always wins"
    assert_kept(kept, chat, one)
