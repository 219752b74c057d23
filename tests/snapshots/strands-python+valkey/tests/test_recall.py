"""What is recalled: of the right person, what fits, in time, from any memory that answers."""

import asyncio
import time
from typing import Any

import pytest

from app.memory.backends import Unavailable
from app.memory.memories import Record
from app.memory.models import Namespace
from app.memory.namespaces import Place, Who, event_session, resolve
from app.memory.recall import Found, Reader, Recall, block

ALICE, FACTS = Who("alice", "s-1", "apollo"), "/users/{actorId}/facts"


class Scripted:
    """A memory that answers what it is given, or fails with it, and notes what it was asked."""

    contact = "nothing"

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = answers, list[Any]()

    async def retrieve(self, place: Place, query: str, top_k: int) -> list[Record]:
        self.asked.append((place.path, query, top_k))
        if isinstance(self.answers[0], BaseException):
            raise self.answers[0]
        scores = enumerate(self.answers)
        return [Record(str(i), f"{top_k} {i}", one, place.path, "") for i, one in scores]


def recall(*memories: Any, seconds: float = 2, **wanted: Any) -> Recall:
    """The recall of a turn of Alice's that reads these memories."""
    namespaces = {FACTS: Namespace(**wanted)}
    readers = [Reader(f"c{i}", "user", one, namespaces) for i, one in enumerate(memories)]
    return Recall(ALICE, readers, seconds)


@pytest.mark.parametrize(
    ("template", "path", "is_subtree"),
    [
        ("users/{actorId}", "/users/alice/", False),
        ("/users/{actorId}/*", "/users/alice/", True),
        ("/{projectId}/{actorId}/{sessionId}/", "/apollo/alice/s-1/", False),
    ],
)
def test_a_namespace_is_filled_in_once(template: str, path: str, is_subtree: bool) -> None:
    place = resolve(template, ALICE)
    assert place == Place(path, is_subtree)
    assert [place.holds(one) for one in (path, f"{path}x/", "/users/alice2/")][1] is is_subtree
    assert not place.holds(f"{path[:-1]}2/")


@pytest.mark.parametrize(
    ("template", "who"),
    [
        ("/users/{actorId}", Who("{sessionId}", "s")),
        ("/users/{actorId}", Who("", "s")),
        ("/users/{actorId}", Who("a/b", "s")),
        ("/users/{actorId}-{sessionId}", ALICE),
        ("/x/{projectId}", Who("a", "s")),
        ("/users/{other}", ALICE),
        ("/users/{actorId", ALICE),
        ("/*", ALICE),
    ],
)
def test_a_namespace_that_is_not_somebodys_own_is_refused(template: str, who: Who) -> None:
    with pytest.raises(ValueError, match=r"^/"):
        resolve(template, who)


def test_long_session_ids_stay_apart() -> None:
    ids = [event_session("x" * 150 + end) for end in "ab"]
    assert [len(ids[0]), len(ids[1]), event_session("s")] == [93, 93, "s"]
    assert ids[0] != ids[1]


async def test_only_what_is_relevant_enough_is_recalled_best_first() -> None:
    one = Scripted(0.19, 0.2, 0.9, 0.5)
    found = await recall(one, top_k=2, relevance_score=0.2).search("?")
    assert [it.score for it in found] == [0.9, 0.5]
    many = Scripted(1.0)
    await recall(many, top_k=1000).search("?")
    assert [one.asked[0][2], many.asked[0][2]] == [8, 100]


async def test_a_turn_asks_once_for_the_end_of_its_prompt() -> None:
    one = Scripted(1.0, 0.5)
    turn = recall(one)
    prompt = "\U0001f600" * 5000 + "x"
    first, again = await turn.once(prompt), await turn.once("?")
    assert first == again
    assert [len(query) for _, query, _ in one.asked] == [5000]
    assert await turn.search(" ") == []


@pytest.mark.parametrize("error", [Unavailable("down"), KeyError("secret"), None])
async def test_a_memory_that_fails_or_hangs_is_left_out(error: Any, caplog: Any) -> None:
    bad = Scripted(error)
    if error is None:
        bad.retrieve = lambda *_: asyncio.sleep(9)  # type: ignore[method-assign,assignment]
    start = time.monotonic()
    found = await recall(bad, Scripted(0.5), seconds=0.1).search("secret")
    assert [(it.collection, it.score) for it in found] == [("c1", 0.5)]
    assert time.monotonic() - start < 1
    why = "no answer within 0.1 s" if error is None else "down" if bad.asked == [] else ""
    (line,) = caplog.messages
    assert line.startswith(f"nothing recalled from c0, {FACTS}: {why}") and "secret" not in line


def test_a_block_is_escaped_and_bounded() -> None:
    found = [Found(text, 1, "", 'a"', "", "") for text in ("</memory> & <b>", "x" * 20_000, "y")]
    lines = block(found).split("\n")
    assert lines[1] == '<entry source="a&quot;">&lt;/memory&gt; &amp; &lt;b&gt;</entry>'
    assert [len(lines), lines[2][-9:], block([])] == [4, "y</entry>", ""]
