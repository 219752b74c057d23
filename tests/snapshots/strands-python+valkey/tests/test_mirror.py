"""Copies for a further collection, and what is set aside: the newest snapshot always stays."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from endpoints import ID, OPTIONS, SNAPSHOT, TURN, collection, serving
from reference_endpoint import Endpoint

from app.memory import mirror
from app.memory.backends import Unavailable
from app.memory.custom_store import CustomStore
from app.memory.errors import StoreError
from app.memory.mirror import Mirror
from app.memory.operations import Operations
from app.memory.secrets import Secrets
from app.memory.stored import Cached
from app.settings import Settings


class Flaky(CustomStore):
    """A store that first fails so often for a session, and notes for which it was to save."""

    asked, failures = "", dict[str, int]()

    async def save(self, session_id: str, *values: Any) -> str | None:
        self.asked += session_id
        if self.asked.count(session_id) <= self.failures.get(session_id, 0):
            raise Unavailable("an outage")
        return await super().save(session_id, *values)

    async def turn(self, session_id: str = "s") -> Any:
        stored = await self.load(session_id)
        return stored and json.loads(stored.snapshot or b"")["app_data"]["turn"]


@pytest.fixture
def store(monkeypatch: Any) -> Iterator[Any]:
    monkeypatch.setattr(mirror, "LONGEST_PAUSE", 0)
    monkeypatch.setattr(mirror, "CLOSING", 0.5)
    with serving(Endpoint()) as url:
        yield Flaky(collection(url), "a", OPTIONS, Secrets(OPTIONS))


def snapshot(turn: int, **more: Any) -> bytes:
    return json.dumps(SNAPSHOT | {"app_data": TURN | {"turn": turn}} | more).encode()


def meanwhile(monkeypatch: Any, step: Any, work: Any) -> None:
    """Do this work just before the next such step."""
    act = getattr(*step)

    async def late(*values: Any) -> Any:
        monkeypatch.setattr(*step, act)
        await work()
        return await act(*values)

    monkeypatch.setattr(*step, late)


async def copied(store: Flaky, newest: bytes | None, copies: Any = None) -> None:
    copies = copies or Mirror(store, 9999)
    copies.put("s", newest) if newest else copies.end("s")
    await asyncio.wait_for(copies._task, 2)


async def test_the_newest_snapshot_is_written_beside_the_turn(store: Any, monkeypatch: Any) -> None:
    copies = Mirror(store, 9999)

    async def go_on() -> None:
        copies.put("t", snapshot(3))

    copies.put("t", snapshot(1))
    copies.put("s", snapshot(1))
    meanwhile(monkeypatch, (Operations, "save_snapshot"), go_on)
    assert (copies.is_waiting, store.asked) == (True, "")
    await copied(store, snapshot(2), copies)
    assert [await store.turn(), await store.turn("t"), store.asked] == [2, 3, "tst"]


async def test_an_older_one_never_replaces_a_newer_copy_until_the_end(store: Any) -> None:
    await copied(store, snapshot(5))
    await copied(store, snapshot(4))
    assert await store.turn() == 5
    await copied(store, snapshot(2, created_at="2026-05-01T10:00:01Z"))  # as after a restore
    assert await store.turn() == 2
    await copied(store, None)
    assert await store.load("s") is None


async def test_an_end_comes_before_the_turns_after_it(store: Any) -> None:
    await store.save("s", snapshot(5), None, ID)
    copies = Mirror(store, 9999)
    copies.end("s")
    await copied(store, snapshot(6), copies)
    assert [await store.turn(), await store.checkpoints("s")] == [6, []]


async def test_an_outage_is_retried_for_each_session_alone(store: Any, caplog: Any) -> None:
    store.failures, copies = {"x": 99, "s": 7}, Mirror(store, 9999)
    copies.put("x", snapshot(1))
    await copied(store, snapshot(1), copies)
    assert store.asked == "xxxxxxxxssssssss"
    assert [await store.turn("x"), await store.turn()] == [None, 1]
    assert caplog.messages == ["session x: not copied: an outage"]


@pytest.mark.parametrize("odd", [{"schema_version": "9"}, {"x": "x" * 9999}], ids=["9", "x"])
async def test_a_copy_that_cannot_be_read_is_set_aside(odd: Any, store: Any) -> None:
    await store.save("s", snapshot(5, **odd), None)
    await copied(store, snapshot(2))
    (name,) = await store.asides("s")
    aside = await store._endpoint.load_snapshot("s", "a.set-aside", name)
    assert json.loads(aside.value["data"]["set_aside"]).items() >= odd.items()
    assert await store.turn() == 2


async def test_a_close_does_not_wait_for_ever(store: Any, caplog: Any) -> None:
    store.save = lambda *_: asyncio.sleep(3)
    copies, start = Mirror(store, 9999), time.monotonic()
    copies.put("s", snapshot(2))
    copies.end("t")
    await copies.close()
    assert 0.4 < time.monotonic() - start < 1.5
    assert caplog.messages == [f"session {it}: not copied: the process ends" for it in "st"]


async def test_a_close_tries_once_more_and_takes_nothing_then(store: Any, caplog: Any) -> None:
    store.failures, copies = {"s": 99}, Mirror(store, 9999)
    copies.put("s", snapshot(1))
    await copies.close()
    copies.put("t", snapshot(1))
    assert (store.asked, copies.is_waiting) == ("s", False)
    why = ["s: not copied: an outage", "t: not copied: the process ends"]
    assert caplog.messages == [f"session {it}" for it in why]


@pytest.mark.parametrize("step", [(CustomStore, "set_aside"), (Operations, "save_snapshot")])
async def test_what_another_replica_wrote_is_not_set_aside(
    step: Any, store: Any, monkeypatch: Any
) -> None:
    revision = await store.save("s", snapshot(5, schema_version="9"), None)
    meanwhile(monkeypatch, step, lambda: store.save("s", snapshot(6), revision))
    with pytest.raises(StoreError) as raised:
        await Cached(Settings(), OPTIONS, store).load("s")
    assert (raised.value.type, await store.turn()) == ("session_conflict", 6)
    assert bool(await store.asides("s")) == (step[0] is Operations)
