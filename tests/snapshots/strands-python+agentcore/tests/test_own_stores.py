"""The stores of the owner: searched in time, and told of committed turns only."""

import asyncio
from typing import Any

import pytest
from strands.memory import MemoryEntry, MemoryStore
from test_memory import Chat, project

from app.memory import adapter
from app.offline_model import OfflineModel

__all__ = ["project"]  # a fixture


class Store(MemoryStore):
    """A store that may hang, and fails the first time that it is written to."""

    description, max_search_results, extraction, writable = None, 5, None, True

    def __init__(self, name: str, told: list[str]) -> None:
        self.name, self.told, self.has_failed = name, told, False

    async def search(self, query: str, options: Any = None) -> list[MemoryEntry]:
        if self.name == "slow":
            await asyncio.sleep(9)
        return [MemoryEntry(f"{self.name} <knows>")]

    async def add_messages(self, messages: list[Any], context: Any = None) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise ConnectionError("later")
        self.told += [block["text"] for one in messages for block in one["content"]]


async def test_a_store_is_searched_and_told_of_committed_turns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    stores = [Store("manuals", told), Store("slow", [])]
    monkeypatch.setattr(adapter, "own_stores", lambda who: stores)
    chat = Chat([ValueError("fails")], ["fine"])
    with pytest.raises(Exception, match="model"):
        await chat.say("ada", "Bad.")
    assert await chat.say("ada", "Hello!") == "fine"
    assert told == ["Hello!", "fine"]
    assert '<entry source="manuals">manuals &lt;knows&gt;</entry>' in chat.model.calls[-1]
    messages: list[Any] = [{"role": "user", "content": [{"text": "Late."}]}]
    attempt = adapter.GuardedStore(stores[0], 1).recording(messages, OfflineModel())
    await asyncio.gather(attempt(), attempt())
    assert told[2:] == ["Late."], "work that is late is not repeated"
    assert "nothing recalled from store slow: no answer within 1 s" in caplog.messages
