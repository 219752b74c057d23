"""The stores of the owner: searches have a time limit, and only committed turns are written."""

import asyncio
from typing import Any

import pytest
from strands.memory import MemoryEntry, MemoryStore
from test_memory import Chat, project

from app.memory import adapter
from app.memory.erase import Erasure
from app.offline_model import OfflineModel

__all__ = ["project"]  # a fixture


class Store(MemoryStore):
    """A store that may hang, and whose first write fails."""

    description, max_search_results, extraction, writable = None, 5, None, True

    def __init__(self, name: str, recorded: list[str]) -> None:
        self.name, self.recorded, self.has_failed = name, recorded, False

    async def search(self, query: str, options: Any = None) -> list[MemoryEntry]:
        if self.name == "slow":
            await asyncio.sleep(9)
        return [MemoryEntry(f"{self.name} <knows>")]

    async def add_messages(self, messages: list[Any], context: Any = None) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise ConnectionError("later")
        self.recorded += [block["text"] for message in messages for block in message["content"]]


async def test_a_store_is_searched_and_gets_committed_turns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorded: list[str] = []
    stores = [Store("manuals", recorded), Store("slow", [])]
    monkeypatch.setattr(adapter, "own_stores", lambda who: stores)
    chat = Chat([ValueError("fails")], ["fine"])
    with pytest.raises(Exception, match="model"):
        await chat.say("ada", "Bad.")
    assert await chat.say("ada", "Hello!") == "fine"
    assert recorded == ["Hello!", "fine"]
    assert '<entry source="manuals">manuals &lt;knows&gt;</entry>' in chat.model.calls[-1]
    messages: list[Any] = [{"role": "user", "content": [{"text": "Late."}]}]
    attempt = adapter.GuardedStore(stores[0], 1).recording(messages, OfflineModel())
    await asyncio.gather(attempt(), attempt())
    assert recorded[2:] == ["Late."], "work that is late is not repeated"
    assert "nothing recalled from store slow: no answer within 1 s" in caplog.messages


async def test_forgetting_erases_what_a_store_offers_and_names_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    erased: list[str] = []
    stores: list[Any] = [Store(name, []) for name in ("own", "diary", "manuals")]

    async def erase(actor: str) -> None:
        erased.append(actor)

    stores[0].erase, stores[2].writable = erase, False
    monkeypatch.setattr(adapter, "own_stores", lambda who: stores)
    report = await Erasure(Chat(["fine"]).long_term, "ada").erase()
    assert erased == ["ada"]
    assert [place.where for place in report.places][-1] == "store own"
    (failure,) = report.could_not
    assert failure.startswith("store diary: it has no erase(actor)")
    assert "store manuals was not looked at: turns are not recorded there" in report.notes
