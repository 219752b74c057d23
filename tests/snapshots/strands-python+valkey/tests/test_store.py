"""Sessions in a store: every process continues them, and none is merged or silently lost."""

import asyncio
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner
from client import Client
from store_server import PASSWORD, StoreServer

from app.capabilities import Settings
from app.collections.models import Collection
from app.collections.secrets import Secrets
from app.main import cli
from app.sessions import Sessions
from app.store.base import Conflict, DurableStore, StoreUnavailable, Unsupported
from app.store.cached import CachedStore
from app.store.capability import check_store
from app.store.declared import DeclaredStore
from app.store.snapshot import owner_of

IDS = [f"01890000-0000-7000-8000-00000000000{number}" for number in range(3)]
META = {"name": "Sessions", "description": "Keeps sessions.", "owner": "tests"}
NAMES = {"spec_version": "1.2", "collection_id": "sessions", "version": "1.0.0", "meta": META}
SETTINGS = Settings(max_snapshot_bytes=8000, store_timeout_seconds=30)
NOBODY = {"actor": None, "key": None, "reply": ""}
DAMAGES: list[dict[str, Any]] = [
    {"data": {"messages": ["x"]}},
    {"app_data": {**NOBODY, "turn": -1}},
    {"app_data": {**NOBODY, "turn": 1, "turns": [{"at": 9, "key": None}]}},
]


class Home:
    """An agent with a name of its own, and its sessions in the server."""

    def __init__(self, server: StoreServer, kind: str) -> None:
        self.server, self.kind, self.agent_id = server, kind, f"agent-{uuid4().hex[:8]}"

    def fields(self, seconds: int = 30) -> dict[str, Any]:
        """Return the front matter of the collection; `seconds` limits a call."""
        scope, backend = {"lifetime": self.server.lifetime}, self.server.backend(self.kind, seconds)
        more = {"status": "active", "scope": scope, "writeback": {"enabled": True}}
        return NAMES | more | {"backend": backend}

    def store(self, options: Settings = SETTINGS) -> DurableStore:
        """Open a store, as another process does."""
        collection = Collection.model_validate(self.fields(options.store_timeout_seconds))
        return DeclaredStore(collection, self.agent_id, options, Secrets(options))

    def replica(self, *script: Any, is_writable: bool = True, **settings: Any) -> Any:
        """Return a client of the agent in another process."""
        client: Any = Client(*script)
        options = replace(SETTINGS, **settings)
        client.store = self.store(options)
        cached = CachedStore(options, client.store, is_writable)
        client.runtime.sessions = Sessions(options, cached)
        return client


@pytest.fixture(scope="module")
def server() -> Iterator[StoreServer]:
    with StoreServer() as server:
        yield server


@pytest.fixture(params=StoreServer.kinds)
def home(request: Any, server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name, value in server.environment(server.port).items():
        monkeypatch.setenv(name, value)
    return Home(server, request.param)


def snapshot(turn: int) -> bytes:
    return json.dumps({"data": {"messages": []}, "app_data": {"turn": turn}}).encode()


async def test_a_save_replaces_the_expected_revision_only(home: Home) -> None:
    store, other = home.store(), home.store()
    assert await store.load("s") is None
    first = await store.save("s", snapshot(1), None)
    loaded = await other.load("s")
    assert loaded and loaded.revision == first and json.loads(loaded.snapshot)["app_data"]["turn"]
    assert await other.load("s", loaded) is loaded
    second = await other.save("s", snapshot(2), first)
    for expected in (None, first):
        with pytest.raises(Conflict):
            await store.save("s", snapshot(3), expected)
    changed = await other.load("s", loaded)
    assert changed and (changed.revision, changed == loaded) == (second, False)
    await store.end("s")
    with pytest.raises(Conflict):
        await store.save("s", snapshot(3), second)
    saves = [(store, other)[n % 2].save("s", snapshot(n), None) for n in range(6)]
    results = await asyncio.gather(*saves, return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["Conflict"] * 5 + ["str"]


async def test_checkpoints_are_kept_and_an_unreadable_snapshot_is_quarantined(home: Home) -> None:
    store, revision = home.store(replace(SETTINGS, checkpoints=2)), None
    for number, id in enumerate(IDS):
        revision = await store.save("s", snapshot(number + 1), revision, id)
    assert (await store.checkpoints("s"))[-2:] == IDS[1:]
    kept = await store.load_checkpoint("s", IDS[1])
    assert kept and json.loads(kept)["app_data"] == {"turn": 2}
    name = await store.quarantine("s", revision)
    assert [await store.load("s"), await store.quarantined("s")] == [None, [name]]
    await store.save("s", snapshot(1), None)
    assert await store.quarantined("s") == [name]
    await store.close()
    store = home.store()
    if home.server.is_listing:
        assert await store.sessions() == ["s"]
    else:
        with pytest.raises(Unsupported):
            await store.sessions()
    await store.end("s")
    assert not await store.checkpoints("s") + await store.quarantined("s")


async def test_a_check_leaves_no_session_and_finds_what_changed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, collection = home.store(), Collection.model_validate(home.fields())
    findings = [finding async for finding in check_store(store, collection, is_writable=True)]
    assert [finding for finding in findings if finding["severity"] == "error"] == []
    load = store.load

    async def load_other(*values: Any) -> Any:
        found = await load(*values)
        return found and replace(found, snapshot=found.snapshot.replace(b'"turn"', b'"t"'))

    monkeypatch.setattr(store, "load", load_other)
    checked = check_store(store, collection, is_writable=True)
    messages = [f["message"] async for f in checked if f["severity"] == "error"]
    assert messages == ["A session that was saved comes back changed or without: app_data.turn."]
    if home.server.is_listing:
        assert await store.sessions() == []


async def test_a_session_continues_after_a_restart_and_in_another_process(home: Home) -> None:
    a, b = home.replica(), home.replica()
    assert [await agent.say("s", str(n)) for n, agent in enumerate([a, b, a, a])] == list("1234")
    restarted = home.replica()
    assert await restarted.say("s", "4") == "5"
    assert restarted.model.calls == ["0 ok 1 ok 2 ok 3 ok 4"]
    assert await b.say("s!") == "end"
    assert [await a.say("s"), await b.say("s")] == ["1", "2"]
    if home.server.expire("s", home.agent_id):
        assert await a.say("s") == "1"


@pytest.mark.parametrize(("address", "outcome"), [("s", "2"), ("s!", "end")])
async def test_a_turn_is_refused_when_another_process_was_faster(
    address: str, outcome: str, home: Home
) -> None:
    slow, fast = home.replica(["a"]), home.replica()
    assert [await slow.say("s"), await fast.say("other")] == ["1", "1"]
    save = slow.store.save

    async def save_second(*values: Any) -> Any:
        slow.store.save = save
        assert await fast.say(address, "x") == outcome
        return await save(*values)

    slow.store.save = save_second
    assert await slow.say("s", "2") == "session_conflict"
    assert await slow.say("s", "y") == {"2": "3", "end": "1"}[outcome]
    assert slow.model.calls[-1] == {"2": "hi a x ok y", "end": "y"}[outcome]


async def test_no_turn_continues_from_a_damaged_snapshot(home: Home) -> None:
    first, second = home.replica(), home.replica()
    for number, damage in enumerate(DAMAGES):
        assert await first.say("s") == "1"
        damaged = json.loads(home.server.read("s", home.agent_id)) | damage
        home.server.overwrite("s", home.agent_id, json.dumps(damaged).encode())
        assert [await second.say("s"), second.model.calls] == ["session_corrupt", []]
        assert len(await first.store.quarantined("s")) == number + 1


async def test_what_another_program_saved_is_refused_and_stays(home: Home) -> None:
    client = home.replica()
    assert await client.say("s") == "1"
    newer = json.loads(home.server.read("s", home.agent_id)) | {"schema_version": "2.0"}
    home.server.overwrite("s", home.agent_id, json.dumps(newer).encode())
    assert [await client.say("s") for _ in "12"] == ["session_foreign"] * 2
    assert json.loads(home.server.read("s", home.agent_id)) == newer


async def test_an_unreadable_answer_is_read_again(home: Home) -> None:
    assert await home.replica().say("s") == "1"
    client = home.replica()
    load = client.store.load

    async def load_badly(*values: Any) -> Any:
        client.store.load = load
        return replace(await load(*values), snapshot=b"{")

    client.store.load = load_badly
    assert await client.say("s") == "2"


async def test_a_session_that_is_larger_than_the_limit_loses_its_oldest_turns(home: Home) -> None:
    client = home.replica(["a" * 3000], ["b"])
    assert [await client.say("s", text) for text in ("one", "two")] == ["1", "2"]
    smaller = home.replica(["c"], max_snapshot_bytes=2500)
    assert await smaller.say("s", "three") == "3"
    assert smaller.model.calls == ["two b three"]


async def test_a_store_that_is_down_fails_the_turn_before_the_model(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (9, silent.getsockname()[1]):
            for name, value in home.server.environment(port).items():
                monkeypatch.setenv(name, value)
            client = home.replica(store_timeout_seconds=1)
            assert [await client.say("s"), client.model.calls] == ["store_unavailable", []]
    assert "store_unavailable" in caplog.text and PASSWORD not in caplog.text


@pytest.mark.parametrize("is_saved", [True, False])
async def test_a_lost_reply_of_a_save_is_detected(is_saved: bool, home: Home) -> None:
    client = home.replica(["a"], ["b"], checkpoints=9)
    assert await client.say("s") == "1"
    save = client.store.save

    async def fail(*values: Any) -> None:
        if is_saved:
            await save(*values)
        raise StoreUnavailable("no answer")

    client.store.save = fail
    assert await client.say("s#k", "2") == ("2" if is_saved else "store_unavailable")
    client.store.save = save
    assert [await client.say("s#k", "2"), await client.say("s", "3")] == ["2", "3"]
    assert len(await client.store.checkpoints("s")) == 3


async def test_a_read_only_store_stays_unchanged(home: Home) -> None:
    assert await home.replica().say("s") == "1"
    client = home.replica(is_writable=False)
    replies = [await client.say(target) for target in ("s", "s", "s!", "s", "new!", "new")]
    assert replies == ["2", "3", "end", "1", "end", "1"]
    assert await home.replica().say("s") == "2"


async def test_the_actor_of_a_session_is_found(home: Home) -> None:
    client = home.replica()
    assert [await client.say(target) for target in ("one@ada", "two@bob", "three")] == ["1"] * 3
    ids = ("one", "two", "three", "unknown")
    assert [await owner_of(home.store(), id) for id in ids] == ["ada", "bob", None, None]


def test_the_commands_show_a_session_and_restore_it(home: Home, apart: Path) -> None:
    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, words)
        return done.exit_code, done.stdout or done.output

    async def talk() -> None:
        client = home.replica(["a"], ["x" * 9000], checkpoints=9)
        assert [await client.say("s") for _ in "123"] == ["1", "session_too_large", "2"]
        await client.store.close()

    asyncio.run(talk())
    uses = {"mode": "user", "read_collections": ["sessions"], "write_collections": ["sessions"]}
    grants = [{"ref": "sessions", "access": "read-write"}]
    files = {"collections/sessions.collection": home.fields()}
    files["agents/apart.agent"] = {"agent_id": home.agent_id, "memory": uses}
    files["iam/apart.iam"] = {"agent_id": home.agent_id, "collections": grants}
    for path, fields in files.items():
        path = path.replace("apart", home.agent_id)
        (apart / f"{path}.md").write_text(f"---\n{json.dumps(fields)}\n---\n", "utf-8")
    (apart / "agents" / "apart.agent.md").unlink()
    assert run("check", "--connect")[0] == 0
    shown = json.loads(run("sessions", "show", "s", "--json")[1])
    assert [entry["turn"] for entry in (shown, *shown["checkpoints"])] == [2, 1, 2]
    first = shown["checkpoints"][0]["id"]
    assert run("sessions", "restore", "s", first) == (0, "Session s is back at turn 1.\n")
    assert f", restored from {first}" in run("sessions", "show", "s")[1]
    for words in (["list"], ["end", "--actor", "ada"]):
        assert run("sessions", *words)[0] == (0 if home.server.is_listing else 1)
    assert run("sessions", "end", "s") == (0, "Session s has ended.\n")
    assert run("sessions", "show", "s")[0] == 1
