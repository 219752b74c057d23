"""Your own stores: searches have a time limit, and only committed turns are written."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from memory_project import MemoryClient, declare_memory
from script import Fail, Reply
from strands.memory import MemoryEntry, MemoryStore

from my_agent.harness.echo_model import OfflineModel
from my_agent.harness.memory import adapter, retry_queue
from my_agent.harness.memory.erase import Erasure
from my_agent.own_memory import OwnMemory


@pytest.fixture(autouse=True)
def project(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in a project with a memory in a local file."""
    monkeypatch.setattr(retry_queue, "FIRST_PAUSE", 0.01)
    declare_memory(apart)


class Store(MemoryStore):
    """A store whose first write fails."""

    description = None
    max_search_results = 5
    extraction = None
    writable = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.recorded: list[str] = []
        self.has_failed = False

    async def search(self, query: str, options: Any = None) -> list[MemoryEntry]:
        return [MemoryEntry(f"{self.name} <knows>")]

    async def add_messages(self, messages: list[Any], context: Any = None) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise ConnectionError("later")
        for message in messages:
            self.recorded += [block["text"] for block in message["content"]]


class HangingStore(Store):
    """A store whose searches never end."""

    async def search(self, query: str, options: Any = None) -> list[MemoryEntry]:
        await asyncio.Event().wait()
        return []


class ErasableStore(Store):
    """A store that can erase an actor."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.erased: list[str] = []

    async def erase(self, actor: str) -> None:
        self.erased.append(actor)


def use_stores(monkeypatch: pytest.MonkeyPatch, *stores: Store) -> None:
    """Let the agent use these stores for each actor."""
    monkeypatch.setattr(OwnMemory, "own_stores", lambda self, who: list(stores))


async def test_a_model_sees_the_entries_of_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    use_stores(monkeypatch, Store("manuals"))
    client = MemoryClient()
    await client.talk("ada", "Hello!")
    entry = '<entry source="manuals">manuals &lt;knows&gt;</entry>'
    assert entry in client.model.requests[0][-1]


async def test_a_hanging_store_is_skipped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use_stores(monkeypatch, Store("manuals"), HangingStore("slow"))
    client = MemoryClient(recall_timeout_seconds=0.3)
    await client.talk("ada", "Hello!")
    assert "manuals" in client.model.requests[0][-1]
    assert "could not search store slow: no answer within 0.3 s" in caplog.messages


async def test_a_store_gets_committed_turns_only(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store("manuals")
    use_stores(monkeypatch, store)
    client = MemoryClient(Fail(ValueError("secret")), Reply("Fine."))
    assert (await client.talk("ada", "Bad.")).error == "model_failed"
    assert (await client.talk("ada", "Hello!")).reply == "Fine."
    assert store.recorded == ["Hello!", "Fine."]


@pytest.mark.parametrize("is_erased", [False, True])
async def test_late_work_is_not_repeated_nor_done_for_an_erased_actor(is_erased: bool) -> None:
    store = Store("manuals")
    store.has_failed = True
    messages: list[Any] = [{"role": "user", "content": [{"text": "Late."}]}]

    async def check() -> bool:
        return is_erased

    attempt = adapter.GuardedStore(store, 1).recording(messages, OfflineModel(), check)
    await asyncio.gather(attempt(), attempt())
    assert store.recorded == ([] if is_erased else ["Late."])


async def test_forget_erases_from_stores_with_erase_and_reports_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    erasable = ErasableStore("erasable")
    diary = Store("diary")
    manuals = Store("manuals")
    manuals.writable = False
    use_stores(monkeypatch, erasable, diary, manuals)
    report = await Erasure(MemoryClient().long_term, "ada").erase()
    assert erasable.erased == ["ada"]
    assert report.places[-1].where == "store erasable"
    [failure] = report.could_not
    assert failure.startswith("store diary: it has no erase(actor)")
    assert "store manuals was not searched: it records no turns" in report.notes
