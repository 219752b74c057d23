"""What waits to be recorded: it outlives its turn, is bounded, and ends with the process."""

import asyncio
import time
from typing import Any

from test_recorder import ALICE, BOB, HANG, Scripted, done, hurry, recorder, turn

from app.memory import outbox
from app.memory.backends import Unavailable

__all__ = ["hurry"]  # a fixture


async def test_too_many_that_wait_go_oldest_first(caplog: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(outbox, "TURNS", 2)
    memory = Scripted()
    records = recorder(memory)
    for name in "abc":
        records.record(ALICE, turn(name))
    monkeypatch.setattr(outbox, "BYTES", 3)
    records.record(ALICE, turn("d"))
    await done(records)
    assert memory.texts == []
    assert caplog.messages[0] == "facts: turns not recorded: 1 (too many wait)"
    assert len(caplog.messages) == 2


async def test_a_turn_that_is_cancelled_is_recorded_all_the_same() -> None:
    memory = Scripted(Unavailable("down"))
    records = recorder(memory)

    async def work() -> None:
        records.record(ALICE, turn("a"))
        await asyncio.sleep(9)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await done(records)
    assert len(memory.told) == 2


def test_what_a_loop_leaves_behind_the_next_one_tells() -> None:
    memory = Scripted(HANG)
    records = recorder(memory)

    async def work() -> None:
        records.record(ALICE, turn("a"))
        await asyncio.sleep(0.01)

    asyncio.run(work())
    records.record(BOB, turn("b"))  # without a loop
    asyncio.run(records.close(2))
    assert [texts[0] for texts in memory.texts] == ["a?", "a?", "b?"]
    assert memory.told[0].token == memory.told[1].token


async def test_a_close_tries_again_at_once(monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE", 30)
    memory = Scripted(Unavailable("down"), Unavailable("down"))
    records = recorder(memory)
    records.record(ALICE, turn("a"))
    await asyncio.sleep(0.01)
    await records.close(2)
    assert (len(memory.told), records.is_waiting, caplog.messages) == (3, False, [])


async def test_a_close_ends_in_time_and_says_what_is_lost(caplog: Any) -> None:
    records, start = recorder(Scripted(HANG, HANG)), time.monotonic()
    records.record(ALICE, turn("a"))
    records.record(BOB, turn("b"))
    await asyncio.sleep(0.01)
    await records.close(0.2)
    assert time.monotonic() - start < 1
    assert caplog.messages == ["facts: turns not recorded: 2 (the process ends)"]


async def test_other_work_has_lines_of_its_own() -> None:
    records, tried = recorder(Scripted()), list[str]()

    def work(name: str, *script: Any) -> Any:
        steps = [*script]

        async def attempt() -> None:
            tried.append(name)
            if steps:
                raise steps.pop(0)

        return attempt

    records.put("one", work("a", KeyError()), 1)
    records.put("one", work("b"), 1)
    records.put("two", work("c"), 1)
    await done(records)
    assert [one for one in tried if one != "c"] == ["a", "a", "b"]
    assert "c" in tried
