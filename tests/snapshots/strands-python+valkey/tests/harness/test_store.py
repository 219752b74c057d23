"""The session store: processes share sessions, detect conflicts, and report lost data."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import Result
from client import Client, run
from script import Answer, Reply
from store_server import PASSWORD, StoreServer

from my_agent.harness.collections.models import Collection
from my_agent.harness.collections.secrets import Secrets
from my_agent.harness.contract import AgentError
from my_agent.harness.enabled import Settings
from my_agent.harness.sessions.sessions import Sessions
from my_agent.harness.store import detached_files
from my_agent.harness.store.base import (
    Conflict,
    DurableStore,
    StoreUnavailable,
    Unsupported,
)
from my_agent.harness.store.cached import CachedStore
from my_agent.harness.store.capability import check_store
from my_agent.harness.store.declared import DeclaredStore
from my_agent.harness.store.detached_files import attach_files, detach_files, names_in
from my_agent.harness.store.snapshot import NOTHING, owner_of

SETTINGS = Settings(max_snapshot_bytes=8000, store_timeout_seconds=30)
CHECKPOINT_IDS = [f"01890000-0000-7000-8000-00000000000{number}" for number in range(3)]


class Replica(Client):
    """A process of the agent: a client, and the store of the process."""

    def __init__(
        self, script: tuple[Answer, ...], settings: Settings, store: DurableStore, is_writable: bool
    ) -> None:
        super().__init__(*script)
        self.store: Any = store
        self.runtime.sessions = Sessions(settings, CachedStore(settings, store, is_writable))

    def before_next(self, method: str, action: Callable[[], Awaitable[object]]) -> None:
        """Run an action before the next call of a method of the store."""
        call = getattr(self.store, method)

        async def act_and_call(*values: Any) -> Any:
            setattr(self.store, method, call)
            await action()
            return await call(*values)

        setattr(self.store, method, act_and_call)


class Home:
    """An agent with a unique id and sessions in the server."""

    def __init__(self, server: StoreServer, kind: str) -> None:
        self.server = server
        self.kind = kind
        self.agent_id = f"agent-{uuid4().hex[:8]}"

    def declaration(self, seconds: int = 30) -> dict[str, Any]:
        """Return the front matter of the collection; `seconds` limits a store call."""
        return {
            "spec_version": "1.2",
            "collection_id": "sessions",
            "version": "1.0.0",
            "status": "active",
            "meta": {"name": "Sessions", "description": "Keeps sessions.", "owner": "tests"},
            "scope": {"lifetime": self.server.lifetime},
            "writeback": {"enabled": True},
            "backend": self.server.backend(self.kind, seconds),
        }

    def store(self, settings: Settings = SETTINGS) -> DurableStore:
        """Open the store like another process."""
        declaration = self.declaration(settings.store_timeout_seconds)
        collection = Collection.model_validate(declaration)
        return DeclaredStore(collection, self.agent_id, settings, Secrets(settings))

    def replica(self, *script: Answer, is_writable: bool = True, **settings: Any) -> Replica:
        """Start another process of the agent."""
        options = replace(SETTINGS, **settings)
        return Replica(script, options, self.store(options), is_writable)

    def read_snapshot(self) -> Any:
        """Return the server's snapshot of session s."""
        return json.loads(self.server.read("s", self.agent_id))

    def overwrite_snapshot(self, snapshot: Any) -> None:
        """Replace the server's snapshot of session s."""
        self.server.overwrite("s", self.agent_id, json.dumps(snapshot).encode())


@pytest.fixture(scope="module")
def server() -> Iterator[StoreServer]:
    with StoreServer() as server:
        yield server


@pytest.fixture(params=StoreServer.kinds)
def home(
    request: pytest.FixtureRequest, server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> Home:
    for name, value in server.environment(server.port).items():
        monkeypatch.setenv(name, value)
    return Home(server, request.param)


def snapshot(turn: int) -> bytes:
    """Return a snapshot after the turn of this number."""
    return json.dumps({"data": {"messages": []}, "app_data": {"turn": turn}}).encode()


def turn_in(snapshot: bytes) -> int:
    """Return the number of the last turn in a snapshot."""
    return int(json.loads(snapshot)["app_data"]["turn"])


async def test_a_saved_snapshot_is_loaded_by_another_process(home: Home) -> None:
    assert await home.store().load("s") is None
    revision = await home.store().save("s", snapshot(1), None)
    other = home.store()
    loaded = await other.load("s")
    assert loaded is not None
    assert loaded.revision == revision
    assert turn_in(loaded.snapshot) == 1
    assert await other.load("s", loaded) is loaded


async def test_a_changed_snapshot_is_loaded_again(home: Home) -> None:
    store, other = home.store(), home.store()
    first = await store.save("s", snapshot(1), None)
    known = await store.load("s")
    second = await other.save("s", snapshot(2), first)
    changed = await store.load("s", known)
    assert changed is not None
    assert changed.revision == second
    assert turn_in(changed.snapshot) == 2


async def test_a_save_replaces_only_the_expected_revision(home: Home) -> None:
    store, other = home.store(), home.store()
    first = await store.save("s", snapshot(1), None)
    await other.save("s", snapshot(2), first)
    with pytest.raises(Conflict):
        await store.save("s", snapshot(3), first)
    with pytest.raises(Conflict):
        await store.save("s", snapshot(3), None)


async def test_a_save_does_not_restore_an_ended_session(home: Home) -> None:
    store = home.store()
    revision = await store.save("s", snapshot(1), None)
    await store.end("s")
    with pytest.raises(Conflict):
        await store.save("s", snapshot(2), revision)


async def test_only_one_concurrent_save_succeeds(home: Home) -> None:
    stores = [home.store(), home.store()] * 3
    saves = [store.save("s", snapshot(turn), None) for turn, store in enumerate(stores)]
    results = await asyncio.gather(*saves, return_exceptions=True)
    conflicts = [result for result in results if isinstance(result, Conflict)]
    revisions = [result for result in results if isinstance(result, str)]
    assert len(conflicts) == 5
    assert len(revisions) == 1


async def save_three_checkpoints(store: DurableStore) -> str | None:
    """Save three turns, each with a checkpoint, and return the last revision."""
    revision = None
    for turn, id in enumerate(CHECKPOINT_IDS, start=1):
        revision = await store.save("s", snapshot(turn), revision, id)
    return revision


async def test_a_store_keeps_the_last_checkpoints(home: Home) -> None:
    store = home.store(replace(SETTINGS, checkpoints=2))
    await save_three_checkpoints(store)
    assert (await store.checkpoints("s"))[-2:] == CHECKPOINT_IDS[1:]
    second = await store.load_checkpoint("s", CHECKPOINT_IDS[1])
    assert second is not None
    assert turn_in(second) == 2


async def test_a_new_snapshot_does_not_replace_a_quarantined_snapshot(home: Home) -> None:
    store = home.store()
    revision = await store.save("s", snapshot(1), None)
    name = await store.quarantine("s", revision)
    assert await store.load("s") is None
    assert await store.quarantined("s") == [name]
    await store.save("s", snapshot(1), None)
    assert await store.quarantined("s") == [name]


async def test_end_deletes_all_data_of_a_session(home: Home) -> None:
    store = home.store(replace(SETTINGS, checkpoints=2))
    revision = await save_three_checkpoints(store)
    await store.quarantine("s", revision)
    await store.close()
    store = home.store()
    await store.end("s")
    assert await store.load("s") is None
    assert await store.checkpoints("s") == []
    assert await store.quarantined("s") == []


async def test_a_store_lists_its_sessions_if_it_supports_lists(home: Home) -> None:
    store = home.store()
    await store.save("s", snapshot(1), None)
    if home.server.is_listing:
        assert await store.sessions() == ["s"]
    else:
        with pytest.raises(Unsupported):
            await store.sessions()


async def errors_of_check(home: Home, store: DurableStore) -> list[str]:
    """Return the error messages of `check --connect` for a store."""
    collection = Collection.model_validate(home.declaration())
    findings = [finding async for finding in check_store(store, collection, is_writable=True)]
    return [finding["message"] for finding in findings if finding["severity"] == "error"]


async def test_a_check_leaves_no_session(home: Home) -> None:
    store = home.store()
    assert await errors_of_check(home, store) == []
    if home.server.is_listing:
        assert await store.sessions() == []


async def test_a_check_reports_a_store_that_changes_sessions(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = home.store()
    load = store.load

    async def load_without_turn(*values: Any) -> Any:
        stored = await load(*values)
        return stored and replace(stored, snapshot=stored.snapshot.replace(b'"turn"', b'"t"'))

    monkeypatch.setattr(store, "load", load_without_turn)
    assert await errors_of_check(home, store) == [
        "A saved session comes back with changed or missing fields: app_data.turn."
    ]


async def test_processes_continue_the_same_session(home: Home) -> None:
    first, second = home.replica(), home.replica()
    assert (await first.say("One", session="s")).turn == 1
    assert (await second.say("Two", session="s")).turn == 2
    assert (await first.say("Three", session="s")).turn == 3
    assert (await first.say("Four", session="s")).turn == 4


async def test_a_session_continues_after_a_restart(home: Home) -> None:
    await home.replica(Reply("one")).say("One", session="s")
    restarted = home.replica()
    assert (await restarted.say("Two", session="s")).turn == 2
    assert restarted.model.requests == [["user: One", "assistant: one", "user: Two"]]


async def test_a_session_ended_by_one_process_starts_new_in_all(home: Home) -> None:
    first, second = home.replica(), home.replica()
    await first.say(session="s")
    assert (await second.end("s")).status == 200
    assert (await first.say(session="s")).turn == 1
    assert (await second.say(session="s")).turn == 2


async def test_an_expired_session_starts_new(home: Home) -> None:
    replica = home.replica()
    await replica.say(session="s")
    if not home.server.expire("s", home.agent_id):
        pytest.skip("the store has no time to live")
    assert (await replica.say(session="s")).turn == 1


async def test_a_turn_conflicts_if_another_process_continued_the_session(home: Home) -> None:
    slow, fast = home.replica(Reply("one")), home.replica()
    await slow.say("One", session="s")
    slow.before_next("save", lambda: fast.say("Two", session="s"))
    assert (await slow.say("Other", session="s")).error == "session_conflict"
    assert (await slow.say("Three", session="s")).turn == 3
    assert slow.model.requests[-1] == [
        "user: One",
        "assistant: one",
        "user: Two",
        "assistant: ok",
        "user: Three",
    ]


async def test_a_turn_conflicts_if_another_process_ended_the_session(home: Home) -> None:
    slow, fast = home.replica(), home.replica()
    await slow.say("One", session="s")
    slow.before_next("save", lambda: fast.end("s"))
    assert (await slow.say("Two", session="s")).error == "session_conflict"
    assert (await slow.say("New", session="s")).turn == 1
    assert slow.model.requests[-1] == ["user: New"]


LAST_TURN = {"actor": None, "key": None, "reply": ""}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param({"data": {"messages": ["x"]}}, id="a message that is not an object"),
        pytest.param({"app_data": {**LAST_TURN, "turn": -1}}, id="a turn before the first"),
        pytest.param(
            {"app_data": {**LAST_TURN, "turn": 1, "turns": [{"at": 9, "key": None}]}},
            id="a turn after the last message",
        ),
    ],
)
async def test_no_turn_continues_a_damaged_session(damage: dict[str, Any], home: Home) -> None:
    await home.replica().say(session="s")
    home.overwrite_snapshot({**home.read_snapshot(), **damage})
    replica = home.replica()
    assert (await replica.say(session="s")).error == "session_corrupt"
    assert replica.model.requests == []
    assert len(await replica.store.quarantined("s")) == 1
    assert (await replica.say(session="s")).turn == 1


@pytest.mark.parametrize("checkpoints", [0, 2])
async def test_only_its_known_actor_ends_a_quarantined_session(
    checkpoints: int, home: Home
) -> None:
    replica = home.replica(checkpoints=checkpoints)
    await replica.say(session="s", actor="ada")
    home.overwrite_snapshot({**home.read_snapshot(), "data": {"messages": ["x"]}})
    assert (await replica.end("s", actor="ada")).error == "session_corrupt"
    other = await replica.end("s", actor="eve")
    assert other.error == ("session_forbidden" if checkpoints else "session_corrupt")
    assert len(await replica.store.quarantined("s")) == 1
    ended = await replica.end("s", actor="ada")
    if checkpoints:  # which show the actor
        assert ended.status == 200
        assert await replica.store.quarantined("s") == []
        assert await replica.store.checkpoints("s") == []
    else:
        assert ended.error == "session_corrupt"
        assert len(await replica.store.quarantined("s")) == 1


async def test_an_end_keeps_a_session_that_only_another_agent_has(home: Home) -> None:
    await home.replica().say(session="s", actor="ada")
    other = Home(home.server, home.kind).replica()
    for actor in ("eve", "ada"):
        assert (await other.end("s", actor=actor)).status == 200
    assert (await home.replica().say(session="s", actor="ada")).turn == 2


async def test_a_session_of_a_newer_format_is_rejected_and_unchanged(home: Home) -> None:
    replica = home.replica()
    await replica.say(session="s")
    newer = {**home.read_snapshot(), "schema_version": "2.0"}
    home.overwrite_snapshot(newer)
    assert (await replica.say(session="s")).error == "session_foreign"
    assert (await replica.say(session="s")).error == "session_foreign"
    assert home.read_snapshot() == newer


async def test_an_unreadable_response_causes_a_second_read(home: Home) -> None:
    await home.replica().say(session="s")
    replica = home.replica()
    load = replica.store.load

    async def load_badly(*values: Any) -> Any:
        replica.store.load = load
        return replace(await load(*values), snapshot=b"{")

    replica.store.load = load_badly
    assert (await replica.say(session="s")).turn == 2


async def test_an_oversized_session_loses_its_oldest_turns(home: Home) -> None:
    replica = home.replica(Reply("a" * 3000), Reply("two"))
    await replica.say("One", session="s")
    await replica.say("Two", session="s")
    smaller = home.replica(max_snapshot_bytes=2500)
    assert (await smaller.say("Three", session="s")).turn == 3
    assert smaller.model.requests == [["user: Two", "assistant: two", "user: Three"]]


def use_port(home: Home, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect the store to a port of this machine."""
    for name, value in home.server.environment(port).items():
        monkeypatch.setenv(name, value)


async def assert_unavailable(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """Assert that a turn fails before the model is called."""
    replica = home.replica(store_timeout_seconds=1)
    assert (await replica.say(session="s")).error == "store_unavailable"
    assert replica.model.requests == []
    assert "store_unavailable" in caplog.text
    assert PASSWORD not in caplog.text


async def test_a_turn_fails_if_the_store_refuses_connections(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use_port(home, 9, monkeypatch)
    await assert_unavailable(home, caplog)


async def test_a_turn_fails_if_the_store_does_not_answer(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        use_port(home, silent.getsockname()[1], monkeypatch)
        await assert_unavailable(home, caplog)


def lose_saves(replica: Replica, *, are_saved: bool) -> Callable[[], None]:
    """Make saves lose their responses or requests; return a function that restores saves."""
    save = replica.store.save

    async def fail(*values: Any) -> None:
        if are_saved:
            await save(*values)
        raise StoreUnavailable("no answer")

    def restore() -> None:
        replica.store.save = save

    replica.store.save = fail
    return restore


async def test_a_save_with_a_lost_response_is_detected(home: Home) -> None:
    replica = home.replica(Reply("one"), Reply("two"), checkpoints=9)
    await replica.say("One", session="s")
    restore = lose_saves(replica, are_saved=True)
    assert (await replica.say("Two", session="s", key="k")).turn == 2
    restore()
    assert (await replica.say("Two", session="s", key="k")).turn == 2
    assert (await replica.say("Three", session="s")).turn == 3
    assert len(await replica.store.checkpoints("s")) == 3


async def test_a_save_with_a_lost_request_can_be_retried(home: Home) -> None:
    replica = home.replica(Reply("one"), Reply("two"), checkpoints=9)
    await replica.say("One", session="s")
    restore = lose_saves(replica, are_saved=False)
    assert (await replica.say("Two", session="s", key="k")).error == "store_unavailable"
    restore()
    assert (await replica.say("Two", session="s", key="k")).turn == 2
    assert (await replica.say("Three", session="s")).turn == 3
    assert len(await replica.store.checkpoints("s")) == 3


async def test_turns_with_a_read_only_store_stay_in_the_process(home: Home) -> None:
    await home.replica().say(session="s")
    replica = home.replica(is_writable=False)
    assert (await replica.say(session="s")).turn == 2
    assert (await replica.say(session="s")).turn == 3
    assert (await home.replica().say(session="s")).turn == 2


async def test_a_read_only_store_hides_pending_turns_that_each_process_could_run(
    home: Home,
) -> None:
    await home.replica().say(session="s")
    stored = await home.store().load("s")
    assert stored is not None
    value = json.loads(stored.snapshot)
    committed = dict(value["app_data"])
    value["app_data"]["pending"] = {}
    await home.store().save("s", json.dumps(value).encode(), stored.revision)
    session = await home.replica(is_writable=False).runtime.sessions.read("s", None)
    assert session.last == committed


async def test_a_session_in_a_read_only_store_ends_only_in_the_process(home: Home) -> None:
    await home.replica().say(session="s")
    replica = home.replica(is_writable=False)
    assert (await replica.end("s")).status == 200
    assert (await replica.say(session="s")).turn == 1
    assert (await replica.end("unknown")).status == 200
    assert (await replica.say(session="unknown")).turn == 1
    assert (await home.replica().say(session="s")).turn == 2


@pytest.mark.parametrize("is_writable", [True, False])
async def test_an_actor_lists_own_sessions_and_their_turns(is_writable: bool, home: Home) -> None:
    replica = home.replica(Reply("A."), Reply("B."), Reply("C."), is_writable=is_writable)
    await replica.say("One.", session="first", actor="ada")
    await replica.say("Two.", session="first", actor="ada")
    await replica.say("Mine.", session="other", actor="eve")
    sessions = replica.runtime.sessions
    turns = await sessions.turns("first", "ada")
    assert [(turn.number, turn.prompt, turn.reply) for turn in turns] == [
        (1, "One.", "A."),
        (2, "Two.", "B."),
    ]
    if not home.server.is_listing:
        with pytest.raises(AgentError, match="session store failed"):
            await sessions.list("ada")
        return
    found = await sessions.list("ada")
    assert [(session.session_id, session.turns) for session in found] == [("first", 2)]
    await sessions.end("first", "ada")
    assert await sessions.list("ada") == []


async def test_owner_of_returns_the_actor_of_a_session(home: Home) -> None:
    replica = home.replica()
    await replica.say(session="first", actor="ada")
    await replica.say(session="second", actor="bob")
    await replica.say(session="third")
    assert await owner_of(home.store(), "first") == "ada"
    assert await owner_of(home.store(), "second") == "bob"
    assert await owner_of(home.store(), "third") is None
    assert await owner_of(home.store(), "unknown") is NOTHING


@pytest.fixture
def project(home: Home, apart: Path) -> None:
    """Run the test in a project with a stored session s: two turns and their checkpoints."""
    memory = {
        "mode": "user",
        "read_collections": ["sessions"],
        "write_collections": ["sessions"],
    }
    grants = [{"ref": "sessions", "access": "read-write"}]
    agent = {"agent_id": home.agent_id, "memory": memory}
    iam = {"agent_id": home.agent_id, "collections": grants}
    write_fields(apart / "collections" / "sessions.collection.md", home.declaration())
    write_fields(apart / "agents" / f"{home.agent_id}.agent.md", agent)
    write_fields(apart / "iam" / f"{home.agent_id}.iam.md", iam)
    (apart / "agents" / "apart.agent.md").unlink()
    asyncio.run(say_three_prompts(home))


def write_fields(path: Path, fields: dict[str, Any]) -> None:
    """Write a file with this front matter."""
    path.write_text(f"---\n{json.dumps(fields)}\n---\n", "utf-8")


async def say_three_prompts(home: Home) -> None:
    """Commit two turns; a turn between them is too large for the store."""
    replica = home.replica(Reply("one"), Reply("x" * 9000), checkpoints=9)
    assert (await replica.say(session="s")).turn == 1
    assert (await replica.say(session="s")).error == "session_too_large"
    assert (await replica.say(session="s")).turn == 2
    await replica.store.close()


def sessions(*words: str) -> Result:
    """Run a command of `sessions`."""
    return run("sessions", *words)


def first_checkpoint() -> str:
    """Return the id of the first checkpoint of session s."""
    shown = json.loads(sessions("show", "s", "--json").stdout)
    return str(shown["checkpoints"][0]["id"])


@pytest.mark.usefixtures("project")
def test_check_connects_to_the_store() -> None:
    assert run("check", "--connect").exit_code == 0


@pytest.mark.usefixtures("project")
def test_show_lists_the_checkpoints_of_a_session() -> None:
    shown = json.loads(sessions("show", "s", "--json").stdout)
    assert shown["turn"] == 2
    assert [checkpoint["turn"] for checkpoint in shown["checkpoints"]] == [1, 2]


@pytest.mark.usefixtures("project")
def test_restore_returns_to_a_checkpoint() -> None:
    id = first_checkpoint()
    restored = sessions("restore", "s", id)
    assert restored.exit_code == 0
    assert restored.stdout == "Session s is back at turn 1.\n"
    assert f", restored from {id}" in sessions("show", "s").stdout


@pytest.mark.usefixtures("project")
def test_commands_for_all_sessions_need_a_store_that_lists_them(home: Home) -> None:
    expected = 0 if home.server.is_listing else 1
    assert sessions("list").exit_code == expected
    assert sessions("end", "--actor", "ada").exit_code == expected


@pytest.mark.usefixtures("project")
def test_end_deletes_a_session() -> None:
    ended = sessions("end", "s")
    assert ended.exit_code == 0
    assert ended.stdout == "Session s has ended.\n"
    assert sessions("show", "s").exit_code == 1


@pytest.mark.usefixtures("project")
def test_erase_project_ends_all_sessions_of_the_agent_and_none_of_another(home: Home) -> None:
    neighbor = Home(home.server, home.kind)
    asyncio.run(say_three_prompts(neighbor))
    wrong = run("erase-project", "--yes", neighbor.agent_id)
    assert wrong.exit_code == 2
    assert sessions("show", "s").exit_code == 0
    erased = run("erase-project", "--yes", home.agent_id)
    assert neighbor.read_snapshot()
    if home.server.is_listing:
        assert erased.exit_code == 0
        assert f"Project {home.agent_id} is erased." in erased.stdout
        assert sessions("show", "s").exit_code == 1
        again = run("erase-project", "--yes", home.agent_id)
        assert again.exit_code == 0
        assert "there is nothing to erase" in again.stdout
    else:
        assert erased.exit_code == 1
        assert "failed: sessions in " in erased.stdout
        assert sessions("show", "s").exit_code == 0


def test_files_leave_the_snapshot_and_come_back() -> None:
    long = "QUJD" * 200
    values = {
        "bytes": long,
        "data": "-_-_" * 200,
        "image": "QUJD",
        "text": long,
        "fields": [{"data": f"sha256:{'0' * 64}"}, {"data": "=sha256-url:"}, {"data": long}],
    }
    snapshot = json.dumps(values).encode()
    stored, files = detach_files(snapshot, [])
    assert len(files) == 2, "equal files are one file"
    assert sorted(files) == sorted(names_in(stored))
    assert attach_files(stored, files) == snapshot
    assert detach_files(snapshot, names_in(stored)) == (stored, {})
    lost = json.loads(attach_files(stored, {}))
    assert lost == values | {
        "bytes": "", "data": "", "fields": [*values["fields"][:2], {"data": ""}]
    }  # fmt: skip


def test_an_old_file_is_uploaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = json.dumps({"data": "QUJD" * 200}).encode()
    stored, files = detach_files(snapshot, [])
    monkeypatch.setattr(detached_files, "RENEWAL_SECONDS", 0)
    renewed, again = detach_files(snapshot, names_in(stored))
    assert [*again.values()] == [*files.values()]
    assert names_in(renewed) == [*again] != [*files]
