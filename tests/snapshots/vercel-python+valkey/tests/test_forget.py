"""Forgetting a person: what is theirs goes, and nothing that may be another's."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.memory.backends import Stored, Unavailable, Unsupported
from app.memory.erasing import Report, erase_records
from app.memory.forget import erase
from app.memory.memories import Event, Item
from app.memory.namespaces import Place, Who
from app.memory.ownership import own_places
from app.parts import Parts
from app.settings import Settings

HEAD: dict[str, Any] = {"spec_version": "1.2", "version": "1.0.0", "status": "active"}
HEAD |= {"meta": {"name": "N", "description": "One. Two.", "owner": "o"}}
COLLECTION = {
    **HEAD,
    "collection_id": "notes",
    "scope": {"lifetime": "user"},
    "backend": {
        "type": "agentcore_memory",
        "memory_id_secret": "env:NO_MEMORY",
        "region": "eu-west-1",
        "retrieval_config": {"/users/{actorId}/facts": {}},
    },
    "writeback": {"enabled": True},
}
SESSIONS = COLLECTION | {"collection_id": "sessions", "scope": {"lifetime": "session"}}
SESSIONS |= {"backend": {"type": "valkey", "endpoint_secret": "env:NO_STORE"}}
LISTS = {"mode": "user", "read_collections": ["notes", "sessions"], "write_collections": ["notes"]}


class Store:
    """The sessions of several actors; one cannot be read."""

    def __init__(self) -> None:
        self.owners: dict[str, str | None] = {"s-1": "alice", "s-2": "alice2", "s-3": None}
        self.is_listed = True

    async def sessions(self) -> list[str]:
        if not self.is_listed:
            raise Unsupported("no")
        return [*self.owners, "s-4"]

    async def load(self, id: str, known: Any = None, checkpoint: Any = None) -> Stored | None:
        text = json.dumps({"app_data": {"actor": self.owners.get(id)}})
        return Stored("1", text.encode() if id in self.owners else b"{")

    async def checkpoints(self, id: str) -> list[str]:
        return []

    async def asides(self, id: str) -> list[str]:
        return []

    async def end(self, id: str) -> None:
        del self.owners[id]


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: Any) -> Parts:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODEL", "")
    files: dict[str, Any] = {
        "agents/a.agent": {"spec_version": "1.2", "agent_id": "a", "memory": LISTS},
        "collections/notes.collection": COLLECTION,
        "collections/sessions.collection": SESSIONS,
    }
    for name, value in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(f"{name}.md").write_text(f"---\n{json.dumps(value)}\n---\n")
    parts: Any = Parts(Settings())
    parts.store = Store()
    return parts  # type: ignore[no-any-return]


def remembered() -> str:
    return Path(".memory/notes.jsonl").read_text()


async def say(parts: Parts, actor: str, session: str) -> None:
    said: list[Item] = [("USER", f"I am {actor}")]
    event = Event(Who(actor, session), said, session, datetime.now(UTC))
    await parts.long_term.memories["notes"].create_event(event)


async def test_what_is_of_one_person_goes_and_nothing_else(parts: Parts) -> None:
    for actor, session in (("alice", "s-1"), ("alice", "s-9"), ("alice2", "s-2")):
        await say(parts, actor, session)
    report = await erase(parts, "alice")
    assert (report.sessions, report.events, report.records) == (1, 2, 2)
    assert report.could_not == []
    assert any("s-4 cannot be read" in note for note in report.notes)
    assert [*parts.store.owners] == ["s-2", "s-3"]  # type: ignore[union-attr]
    left = remembered()
    assert "alice2" in left and '"alice"' not in left
    again = await erase(parts, "alice")
    assert (again.sessions, again.events, again.records) == (0, 0, 0)


async def test_a_store_that_lists_nothing_is_asked_for_the_sessions_that_are_remembered(
    parts: Parts,
) -> None:
    parts.store.is_listed = False  # type: ignore[union-attr]
    await say(parts, "alice", "s-1")
    await say(parts, "alice", "s-2")  # in a session that another began
    report = await erase(parts, "alice")
    assert (report.sessions, report.could_not) == (1, [])
    assert [*parts.store.owners] == ["s-2", "s-3"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("templates", "actor", "paths"),
    [
        (["/users/{actorId}/facts", "users/{actorId}/{sessionId}/"], "alice", ["/users/alice/"]),
        (["/by/{sessionId}/{actorId}/*"], "alice", ["/by/s-1/alice/", "/by/s-2/alice/"]),
        (["/{projectId}/{actorId}"], "alice", ["/apollo/alice/"]),
        (["/{actorId}/likes", "/users/{actorId}/facts"], "alice", ["/alice/", "/users/alice/"]),
        (["/{actorId}/likes", "/users/{actorId}/facts"], "users", ["/users/users/"]),
        (["/u/{actorId}", "/u/shared/notes"], "shared", []),
        (["/{actorId}/likes", "/{sessionId}/likes"], "alice", []),
        (["/{actorId}-{sessionId}", "/shared"], "alice", []),
        (["/users/{actorId}"], "team/alice", []),
    ],
)
def test_a_place_is_erased_when_it_can_be_of_nobody_else(
    templates: list[str], actor: str, paths: list[str]
) -> None:
    own = own_places(templates, Who(actor, "", "apollo"), ["s-1", "s-2"])
    assert [*own.places] == paths
    assert own.places.values() or own.shared


async def test_records_that_stay_are_told() -> None:
    class Stubborn:
        async def records(self, place: Place, token: None) -> tuple[list[str], None]:
            return ["r-1"], None

        async def delete_records(self, ids: list[str]) -> int:
            return 0

    stubborn: Any = Stubborn()
    with pytest.raises(Unavailable, match="1 in /users/alice/"):
        await erase_records(stubborn, Place("/users/alice/", True), Report("alice"))
