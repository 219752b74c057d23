"""Committed turns on their way to long-term memory: each arrives, as one event."""

import asyncio
from typing import Any

import pytest

from app.memory import outbox
from app.memory.backends import Unavailable
from app.memory.errors import Refused
from app.memory.memories import Event, Item
from app.memory.namespaces import Who
from app.memory.recorder import Recorder, Writer, prepare

ALICE, BOB = Who("alice", "s"), Who("bob", "s")
HANG = TimeoutError()


class Scripted:
    """A memory that fails as its script says, and notes what it was told."""

    contact = "nothing"

    def __init__(self, *script: Any) -> None:
        self.script, self.told = list(script), list[Event]()

    async def create_event(self, event: Event) -> None:
        self.told.append(event)
        step = self.script.pop(0) if self.script else None
        if step is HANG:
            await asyncio.sleep(9)
        elif step:
            raise step

    @property
    def texts(self) -> list[list[str]]:
        """The texts of each event that it was told."""
        return [[text for _, text in event.items] for event in self.told]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: Any) -> None:
    """Pause hardly at all."""
    monkeypatch.setattr(outbox, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(outbox, "CLOSING_PAUSE", 0.01)


def recorder(memory: Any, batch_size: int = 1) -> Recorder:
    """A recorder that tells one memory."""
    return Recorder([Writer("facts", memory, batch_size)])


def turn(name: str) -> list[Item]:
    """What one turn said."""
    return [("USER", f"{name}?"), ("ASSISTANT", f"{name}!")]


async def done(records: Recorder) -> None:
    """Wait until all is told."""
    for _ in range(200):
        await asyncio.sleep(0.005 * records.is_waiting)
    assert not records.is_waiting


@pytest.mark.parametrize(("batch_size", "sizes"), [(1, [2, 2, 2]), (3, [2, 2, 2]), (4, [4, 2])])
async def test_turns_that_wait_are_joined_up_to_the_batch(batch_size: int, sizes: Any) -> None:
    memory = Scripted()
    records = recorder(memory, batch_size)
    for who, name in [(ALICE, "a"), (BOB, "b"), (ALICE, "c")]:
        records.record(who, turn(name))
    assert (records.is_waiting, memory.told) == (True, [])
    await done(records)
    assert [len(texts) for texts in memory.texts] == sizes
    assert [texts[0] for texts in memory.texts][:2] == ["a?", "b?"]
    assert len({event.token for event in memory.told}) == len(sizes)


def test_texts_are_joined_and_split_as_the_service_takes_them() -> None:
    assert prepare([("USER", " "), ("USER", "a"), ("USER", "b")]) == [("USER", "a\n\nb")]
    (_, one), (_, other) = prepare([("USER", "x" + "\U0001f600" * 60_000)])
    assert [len(one.encode("utf-16-le")) // 2, one + other] == [99_999, "x" + "\U0001f600" * 60_000]


async def test_a_turn_of_very_many_texts_is_told_in_several_events() -> None:
    memory = Scripted()
    records = recorder(memory)
    records.record(ALICE, [("USER", "u"), ("ASSISTANT", "a")] * 75)
    await done(records)
    assert [len(texts) for texts in memory.texts] == [100, 50]


async def test_what_fails_is_told_again_as_the_same_event() -> None:
    memory = Scripted(Unavailable("down"), KeyError("odd"))
    records = recorder(memory)
    records.record(ALICE, turn("a"))
    records.record(ALICE, turn("b"))
    await done(records)
    assert [texts[0] for texts in memory.texts] == ["a?", "a?", "a?", "b?"]
    assert memory.told[0] == memory.told[2]


async def test_what_is_refused_or_fails_too_long_is_given_up(caplog: Any, monkeypatch: Any) -> None:
    memory = Scripted(Refused("not valid"), Unavailable("down"))
    records = recorder(memory)
    records.record(ALICE, turn("a"))
    await done(records)
    monkeypatch.setattr(outbox, "LONGEST", 0)
    records.record(ALICE, turn("b"))
    await done(records)
    assert [level for _, level, _ in caplog.record_tuples] == [40, 40]
    lines = ["facts: turns not recorded: 1 (not valid)", "facts: turns not recorded: 1 (down)"]
    assert caplog.messages == lines
