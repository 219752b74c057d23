"""What is found at a custom endpoint that departs from the contract, and the commands."""

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner
from endpoints import ARN, ID, OPTIONS, PLACE, SNAPSHOT, TURN, collection, serving, set_aws, store
from reference_endpoint import Endpoint

from app.memory.backends import Conflict, Stored
from app.memory.commands import cli
from app.memory.custom_store import CustomStore
from app.memory.endpoint import check_endpoint
from app.memory.secrets import Secrets


async def test_what_cannot_be_read_is_set_aside_and_a_marker_is_replaced(caplog: Any) -> None:
    endpoint, snapshot = Endpoint(), json.dumps(SNAPSHOT).encode()
    with serving(endpoint) as url:
        custom = store(url)
        revision = await custom.save("s", snapshot, None)
        loaded = await custom.load("s")
        assert loaded and json.loads(loaded.snapshot or b"") == SNAPSHOT
        assert await custom.load("s", revision) == Stored(revision, None)
        with pytest.raises(Conflict):
            await custom.save("s", snapshot, None)
        endpoint._db.execute("UPDATE kept SET json = '{\"da' WHERE id = 'latest'")
        assert await custom.load("s") == Stored(revision, b'{"da')
        name = await custom.set_aside("s", revision)
        assert (await custom.load("s"), await custom.asides("s")) == (None, [name])
        assert await custom.checkpoints("s") == []
        assert await custom.save("s", snapshot, None)
        endpoint._db.execute(
            "UPDATE kept SET json = '{\"schema_version\": \"9\"}' WHERE id = 'manifest'"
        )
        foreign = await custom.load("s")
        assert foreign and b'"9 in its manifest"' in (foreign.snapshot or b"")
        await custom.close()


class Broken(Endpoint):
    """An endpoint that departs from the contract in one way."""

    how = ""

    def do(self, ask: Any) -> tuple[int, str, str | None]:
        """Answer, mostly as the reference endpoint does."""
        operation = ask["operation"]
        if self.how == "ignores conditions":
            ask |= {"if_match": None, "if_none_match": None}
        if self.how == "mixes scopes" and "scope" in ask:
            ask["scope"] = PLACE["scope"]
        if self.how == "keeps what is deleted" and operation == "delete_session":
            return 200, '{"ok": true}', None
        status, value, etag = super().do(ask)
        if self.how == "lists backwards" and operation == "list_snapshot_ids":
            value = json.dumps({"snapshot_ids": json.loads(value)["snapshot_ids"][::-1]})
        return (
            status,
            value,
            {"has no ETag": None, "lies": '"1"' if etag else None}.get(self.how, etag),
        )


WRONG = {
    "": [],
    "has no ETag": ["AML-C20"],
    "lies": ["AML-C08"],
    "ignores conditions": ["AML-C09", "AML-C10", "AML-C11"],
    "mixes scopes": ["AML-C07"],
    "keeps what is deleted": ["AML-C17"],
    "lists backwards": ["AML-C01"],
}


@pytest.mark.parametrize("how", [*WRONG, "over Lambda"])
async def test_the_check_of_an_endpoint_finds(how: str, monkeypatch: Any) -> None:
    endpoint = Broken()
    endpoint.how = how
    with serving(endpoint) as url:
        set_aws(monkeypatch, url)
        where = collection(ARN if how == "over Lambda" else url)
        found = await check_endpoint(where, "a", OPTIONS, Secrets(OPTIONS), "f", 7)
        assert [one["id"] for one in found] == WRONG.get(how, []), found
        left = endpoint._db.execute("SELECT count(*) FROM kept").fetchone()[0]
    assert (left > 0) == (how == "keeps what is deleted")


def test_the_commands_show_a_session_and_take_it_back(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", "t")
    bearer = {"scheme": "bearer-token", "source": "env", "name": "TOKEN"}
    memory = {"mode": "user", "read_collections": ["sessions"], "write_collections": ["sessions"]}
    grants = [{"ref": "sessions", "access": "read-write"}]
    agent: dict[str, Any] = {"spec_version": "1.2", "agent_id": "a"}

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, words)
        return done.exit_code, done.stdout or done.output  # errors are elsewhere

    with serving(Endpoint(token="t")) as url:
        declared = collection(url, bearer).model_dump(exclude_none=True)
        files = {
            "collections/sessions.collection.md": declared,
            "agents/a.agent.md": agent | {"memory": memory},
            "iam/a.iam.md": agent | {"collections": grants},
        }
        for name, fields in files.items():
            (tmp_path / name).parent.mkdir()
            (tmp_path / name).write_text(f"---\n{json.dumps(fields)}\n---\n")
        code, told = run("check", "--endpoint")
        assert (code, "AML-C" in told, "0 errors" in told) == (0, False, True), told
        snapshots = [json.dumps(SNAPSHOT | {"app_data": TURN | {"turn": n}}) for n in (1, 2)]
        asyncio.run(_save(store(url, bearer), snapshots))
        shown = json.loads(run("sessions", "show", "s", "--json")[1])
        assert (shown["turn"], shown["checkpoints"][0]["turn"]) == (2, 1)
        assert run("sessions", "restore", "s", ID) == (0, "Session s is back at turn 1.\n")
        assert f"turn 1, no actor, {SNAPSHOT['created_at']}" in run("sessions", "show", "s")[1]
        code, told = run("sessions", "list")
        assert (code, "no operation that lists sessions" in told) == (1, True)
        assert run("sessions", "end", "s") == (0, "Session s has ended.\n")
        assert run("sessions", "show", "s")[0] == run("sessions", "restore", "s", ID)[0] == 1
    monkeypatch.delenv("TOKEN")
    code, told = run("sessions", "show", "s")
    assert (code, "There is no store" in told, "TOKEN" in told) == (1, True, True)
    code, told = run("check", "--endpoint")
    assert (code, "AML-C21" in told, "AML-W240" in told) == (1, True, True), told
    unused = json.dumps(agent | {"memory": {"mode": "none"}})
    (tmp_path / "agents/a.agent.md").write_text(f"---\n{unused}\n---\n")
    code, told = run("check", "--endpoint")
    assert (code, "agents/a.agent.md:1 AML-C00" in told) == (1, True), told


async def _save(custom: CustomStore, snapshots: list[str]) -> None:
    revision = await custom.save("s", snapshots[0].encode(), None, ID)
    await custom.save("s", snapshots[1].encode(), revision)
