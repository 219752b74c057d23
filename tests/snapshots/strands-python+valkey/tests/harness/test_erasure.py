"""The command `erase-project`: counts, failures, a second run, and data that must stay."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import pytest
from client import run

from my_agent.harness.collections.backends import OtherConfig
from my_agent.harness.collections.erasure import (
    ProjectErasure,
    Stock,
    for_each,
    unread,
)

EARLIER = f"""---
spec_version: "1.2"
collection_id: "earlier"
version: "1.0.0"
status: "active"
meta: {{name: "Earlier", description: "One. Two.", owner: "me", last_updated: "2026-04-01"}}
scope: {{lifetime: "user"}}
writeback: {{enabled: true}}
backend: {{type: "{get_args(OtherConfig.model_fields["type"].annotation)[0]}"}}
---
"""


class Down(Exception):
    """The place fails."""


class Shelf:
    """A place with items, as a capability. It fails after `limit` deletions."""

    def __init__(self, *items: str, stays_because: str = "") -> None:
        self.items = [*items]
        self.limit = 1000
        self.locked = set[str]()  # these fail always
        self.added: list[str] = []  # after each list, one of them is stored
        self.stays_because = stays_because
        self.is_closed = False

    def project_stocks(self, unshared: Any) -> list[Stock]:
        why = self.stays_because
        return [Stock("books", "a shelf", self.pages, self.delete, (Down,), why, "it is dusty")]

    async def pages(self) -> AsyncIterator[list[str]]:
        if self.is_closed:
            raise Down("no key")
        yield [*self.items]
        if self.added:
            self.items.append(self.added.pop())

    async def delete(self, names: list[str]) -> int:
        return await for_each(names, self.delete_one)

    async def delete_one(self, name: str) -> None:
        if self.limit == 0 or name in self.locked:
            raise Down("no light")
        self.limit -= 1
        self.items.remove(name)


async def test_all_items_are_counted_then_erased() -> None:
    shelf = Shelf("a", "b")
    erasure = ProjectErasure([shelf], [])
    assert await erasure.count() == ["  books in a shelf: 2"]
    assert shelf.items == ["a", "b"]
    assert not erasure.is_empty
    assert await erasure.erase() == ["erased: books in a shelf: 2", "note: it is dusty"]
    assert shelf.items == []
    assert not erasure.has_remains
    again = ProjectErasure([shelf], [])
    assert await again.count() == ["  books in a shelf: 0"]
    assert again.is_empty


async def test_a_failure_names_the_rest_and_a_second_run_erases_it() -> None:
    shelf = Shelf("a", "b", "c")
    other = Shelf("d")
    shelf.limit = 1
    erasure = ProjectErasure([shelf, other], [])
    lines = await erasure.erase()
    assert "erased: books in a shelf: 1" in lines
    assert "failed: books in a shelf: 2 left: no light" in lines
    assert erasure.has_remains
    assert erasure.is_retryable
    assert other.items == [], "the other place is erased"
    shelf.limit = 1000
    again = ProjectErasure([shelf, other], [])
    assert "erased: books in a shelf: 2" in await again.erase()
    assert not again.has_remains


async def test_items_of_an_agent_that_still_runs_are_reported() -> None:
    shelf = Shelf("a")
    shelf.added = [f"new-{number}" for number in range(100)]
    erasure = ProjectErasure([shelf], [])
    lines = await erasure.erase()
    assert "failed: books in a shelf: 1 left: stop the agent, and run this again" in lines
    assert erasure.has_remains


async def test_data_that_may_belong_to_others_stays() -> None:
    shelf = Shelf("a", stays_because="it is borrowed")
    erasure = ProjectErasure([shelf], [])
    assert await erasure.count() == ["not erased: books in a shelf: it is borrowed"]
    assert erasure.is_empty
    assert await erasure.erase() == ["not erased: books in a shelf: it is borrowed"]
    assert shelf.items == ["a"]
    assert erasure.has_remains
    assert not erasure.is_retryable


async def test_a_place_that_cannot_be_listed_is_named_even_if_its_data_stays() -> None:
    shelf = Shelf("a", stays_because="it is borrowed")
    shelf.is_closed = True
    erasure = ProjectErasure([shelf], [])
    assert await erasure.count() == ["  books in a shelf: cannot be counted: no key"]
    assert erasure.is_empty
    assert erasure.has_remains


async def test_one_locked_item_does_not_keep_the_others() -> None:
    shelf = Shelf(*[str(number) for number in range(500)])
    shelf.locked = {"7", "8"}
    erasure = ProjectErasure([shelf], [])
    lines = await erasure.erase()
    assert lines[0] == "erased: books in a shelf: 498"
    assert lines[1] == "failed: books in a shelf: 2 left: no light"
    assert sorted(shelf.items) == ["7", "8"]


async def test_items_that_name_no_project_belong_to_all_projects_of_the_agent() -> None:
    shelf = Shelf("a")
    erasure = ProjectErasure([shelf], [], "apollo")
    assert await erasure.count() == ["  books of every PROJECT_ID in a shelf: 1"]
    lines = await erasure.erase()
    assert lines[0] == "erased: books of every PROJECT_ID in a shelf: 1"


class Closed:
    """A place whose secret is not set."""

    def project_stocks(self, unshared: Any) -> list[Stock]:
        return [unread("books", "the library", "SECRETS_LIBRARY")]


async def test_a_place_whose_secret_is_unset_is_named() -> None:
    erasure = ProjectErasure([Closed()], [], "apollo")
    why = "set SECRETS_LIBRARY, and run this again: nothing there was looked at"
    assert await erasure.count() == [f"  books in the library: cannot be counted: {why}"]
    assert not erasure.is_empty
    assert await erasure.erase() == [f"failed: books in the library: {why}"]
    assert erasure.has_remains
    assert not erasure.is_retryable, "only after the secret is set"


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("name", ["other", "", "Apart"])
def test_a_wrong_name_is_an_error(name: str) -> None:
    result = run("erase-project", "--yes", name)
    assert result.exit_code == 2
    refusal = f'"{name}" is not the name of this project, apart. Nothing was erased.'
    assert result.output == f"Error: {refusal}\n"


@pytest.mark.usefixtures("apart")
def test_an_unknown_collection_is_an_error() -> None:
    result = run("erase-project", "--yes", "apart", "--unshared", "unknown")
    assert result.exit_code == 2


def test_a_collection_that_the_agent_does_not_use_is_named(apart: Path) -> None:
    file = apart / "collections" / "earlier.collection.md"
    file.write_text(EARLIER, "utf-8")
    result = run("erase-project", "--yes", "apart")
    assert result.exit_code == 1
    assert "not erased: data of collection earlier in its store: not looked at" in result.stdout
    assert "there is nothing to erase" in result.stdout


def test_a_project_without_stored_data_is_erased(apart: Path) -> None:
    assert apart.exists()
    result = run("erase-project", "--yes", "apart")
    assert result.exit_code == 0
    assert "there is nothing to erase" in result.stdout
