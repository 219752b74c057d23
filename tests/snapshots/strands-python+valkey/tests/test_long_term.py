"""Long-term memory as the turns use it, with the file that stands in for AgentCore Memory."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app import memory
from app.contract import AgentError, Ask
from app.memory.backends import Unavailable
from app.memory.local_memory import LocalMemory
from app.memory.long_term import LongTerm
from app.memory.memories import Event, Item
from app.memory.models import Collection, Namespace
from app.memory.namespaces import Place, Who
from app.memory.options import Options
from app.memory.project import Project
from app.memory.recall import Reader, Recall
from app.memory.secrets import Secrets
from app.settings import Settings

ALICE, FACTS = Who("alice", "s-1", "apollo"), "/users/{actorId}/facts"
SCOPE = {"lifetime": "user"}
BACKEND = {
    "type": "agentcore_memory",
    "memory_id_secret": "secrets/unset",
    "region": "eu-west-1",
    "retrieval_config": {FACTS: {}},
}
COLLECTION: dict[str, Any] = {
    "spec_version": "1.2",
    "collection_id": "facts",
    "version": "1.0.0",
    "status": "active",
    "meta": {"name": "n", "description": "d", "owner": "o"},
    "scope": SCOPE,
    "backend": BACKEND,
    "writeback": {"enabled": True},
}


def long_term(*collections: dict[str, Any], **options: Any) -> LongTerm:
    """The long-term memory of a project with these collections."""
    models = [Collection.model_validate(COLLECTION | one) for one in collections]
    ids, chosen = [one.collection_id for one in models], Options(**options)
    project = Project("a", dict(zip(ids, models, strict=True)), ids, ids)
    return LongTerm(Settings(), chosen, project, Secrets(chosen))


def recall(kept: LocalMemory, actor: str) -> Recall:
    """The recall of a turn of somebody's, in another session."""
    return Recall(Who(actor, "s-2"), [Reader("f", "user", kept, {FACTS: Namespace()})], 2)


def lines(more: str = "") -> str:
    """What the file of the collection holds, with more at its end."""
    file = Path(".memory/facts.jsonl")
    file.write_text(text := file.read_text("utf-8") + more, "utf-8")
    assert (file.parent / ".gitignore").read_text() == "*\n"
    return text


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)


async def test_a_local_memory_recalls_in_another_session_what_a_person_said() -> None:
    kept = LocalMemory("facts", [FACTS, "/users/{actorId}/{sessionId}"])
    items: list[Item] = [("USER", "My cats are called Miso"), ("ASSISTANT", "Nice cat")]
    event = Event(ALICE, items, "token", datetime.now(UTC))
    await kept.create_event(event)
    await kept.create_event(event)
    lines('{"record": 1}\n[')
    again = LocalMemory("facts", [FACTS])
    found = await recall(again, "alice").search("What is my cat called?")
    assert [(it.text, it.score) for it in found] == [("My cats are called Miso", 1)]
    assert await recall(again, "bob").search("cat") == []
    below, _ = await again.records(Place("/users/alice/", True), None)
    assert (len(below), await again.sessions("alice")) == (2, ["s-1"])
    assert await again.sessions("bob") == []
    for id in await again.events("alice", "s-1"):
        await again.delete_event("alice", "s-1", id)
    assert [await again.delete_records(below), await again.sessions("alice")] == [2, []]
    assert lines() == ""


async def test_a_turn_adds_what_it_says_when_it_commits() -> None:
    kept = long_term({})
    with pytest.raises(RuntimeError):
        memory.add("x")
    kept.begin(Ask("s", "alice", None, "hi"))
    memory.add("My tea is sencha")  # of a turn that fails
    turn = kept.begin(Ask("s", "alice", None, "hi"))
    memory.add("My cat is called Miso")
    kept.record(turn, [("USER", "hi"), ("ASSISTANT", "hello")])
    await kept.close(2)
    assert [it.text for it in await memory.search("cat or tea")] == ["My cat is called Miso"]


@pytest.mark.parametrize(
    ("actor", "type"), [(None, "actor_required"), ("team/alice", "invalid_actor")]
)
def test_everybody_needs_a_name_of_their_own(actor: str | None, type: str) -> None:
    with pytest.raises(AgentError) as raised:
        long_term({}).begin(Ask("s", actor, None, "hi"))
    assert raised.value.type == type


@pytest.mark.parametrize(
    ("collections", "why"),
    [
        ([{}, {"collection_id": "more"}], "both write to one memory"),
        ([{"scope": {"lifetime": "project"}}], "PROJECT_ID"),
        ([{"backend": BACKEND | {"retrieval_config": {"/{actorId}{sessionId}": {}}}}], "segment"),
    ],
)
def test_what_cannot_work_keeps_the_agent_from_starting(collections: Any, why: str) -> None:
    with pytest.raises(Unavailable, match=why):
        long_term(*collections)
