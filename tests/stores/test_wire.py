"""The six operations of a custom backend, byte for byte as its owner sees them."""

import json
import os
import re
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.conformance.chat import Chat, assert_failed, echoed
from tests.conformance.client import JSON, KEY
from tests.conformance.provider import Provider
from tests.conformance.waiting import ask
from tests.stores.agents import Agents, Home, Replica, command
from tests.stores.forks import run
from tests.stores.proxy import http_requests
from tests.stores.stores import SENTINEL
from tests.stores.test_commands import UUID7

pytestmark = [pytest.mark.stores("custom-rest", "custom-lambda")]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")

Asked = tuple[str, dict[str, Any], dict[str, str]]  # the operation, its payload, its headers


def asked(replica: Replica) -> list[Asked]:
    """What the endpoint has been asked, with REST's paths and queries read as payloads."""
    return [
        rest(*request) if replica.home.store.name == "custom-rest" else aws(*request)
        for request in http_requests(replica.proxy.sent)
    ]


def aws(method: str, path: str, headers: dict[str, str], body: bytes) -> Asked:
    assert method == "POST"
    assert re.fullmatch(r"/2015-03-31/functions/[^/]+/invocations", path)
    assert headers.get("x-amz-invocation-type", "RequestResponse") == "RequestResponse"
    assert SENTINEL not in str(headers)
    payload = json.loads(body)
    return payload["operation"], payload, headers


def rest(method: str, path: str, headers: dict[str, str], body: bytes) -> Asked:
    assert headers["authorization"] == f"Bearer {SENTINEL}"
    url = urlsplit(path)
    query: dict[str, Any] = dict(parse_qsl(url.query))
    where = f"{method} {url.path}"
    if where in ("POST /snapshots", "POST /manifests"):
        assert headers["content-type"].startswith("application/json")
        assert query == {}
        payload = json.loads(body)
        return payload["operation"], payload, headers
    assert body == b""
    if method == "DELETE":
        assert query == {}
        session = url.path.removeprefix("/sessions/")
        return "delete_session", {"operation": "delete_session", "session_id": session}, headers
    operation = {
        "GET /snapshots": "load_snapshot",
        "GET /snapshots/list": "list_snapshot_ids",
        "GET /manifests": "load_manifest",
    }[where]
    scope = {"type": query.pop("scope_type"), "scope_id": query.pop("scope_id")}
    if operation == "list_snapshot_ids":
        query = {"start_after": None, **query, "limit": int(query["limit"])}
    return operation, {"operation": operation, **query, "scope": scope}, headers


def of(replica: Replica, operation: str) -> list[Asked]:
    return [one for one in asked(replica) if one[0] == operation]


def base(home: Home, chat: Chat, operation: str) -> dict[str, Any]:
    scope = {"type": "agent", "scope_id": home.agent_id}
    return {"operation": operation, "session_id": chat.session, "scope": scope}


def condition(one: Asked, name: str) -> str | None:
    _, payload, headers = one
    return payload.get(name.replace("-", "_")) or headers.get(name)


def without_conditions(payload: dict[str, Any]) -> dict[str, Any]:
    return {name: payload[name] for name in payload if name not in ("if_match", "if_none_match")}


@pytest.mark.spread
def test_the_operations_are_the_json_of_the_contract(agents: Agents, provider: Provider) -> None:
    replica = agents.pair()[0]
    home, chat = replica.home, Chat(replica.server, provider)
    replica.proxy.records = True
    chat.say("One.", headers={KEY: "key-1"})
    chat.say("Two.")
    loads = of(replica, "load_snapshot")
    for load in loads:
        expected = base(home, chat, "load_snapshot") | {"snapshot_id": "latest"}
        assert without_conditions(load[1]) == expected
    saves = of(replica, "save_snapshot")
    latest = [save for save in saves if save[1]["is_latest"]]
    immutable = [save for save in saves if not save[1]["is_latest"]]
    assert (len(latest), len(immutable)) == (2, 2)
    for save in saves:
        payload = without_conditions(save[1])
        snapshot = payload.pop("snapshot")
        snapshot_id = payload.pop("snapshot_id")
        is_latest = payload.pop("is_latest")
        assert payload == base(home, chat, "save_snapshot")
        assert snapshot_id == "latest" if is_latest else UUID7.fullmatch(snapshot_id)
        assert set(snapshot) == {"data", "schema_version", "created_at", "scope", "app_data"}
        assert (snapshot["schema_version"], snapshot["scope"]) == ("1.0", "agent")
        assert TIME.fullmatch(snapshot["created_at"])
        assert len(snapshot["data"]["messages"]) == 2 * snapshot["app_data"]["turn"]
        assert set(snapshot["data"]["state"]) == {"_agent_template_session"}
        assert (
            snapshot["data"]["state"]["_agent_template_session"]["app_data"] == snapshot["app_data"]
        )
        assert snapshot["data"]["system_prompt"] is None
    turns = [save[1]["snapshot"]["app_data"].pop("turns") for save in latest]
    assert [[(turn["at"], turn["key"]) for turn in held] for held in turns] == [
        [(0, "key-1")],
        [(0, "key-1"), (2, None)],
    ]
    assert [save[1]["snapshot"]["app_data"] for save in latest] == [
        {"actor": None, "turn": 1, "key": "key-1", "reply": "You said: One."},
        {"actor": None, "turn": 2, "key": None, "reply": "You said: Two."},
    ]
    assert condition(latest[0], "if-none-match") == "*"
    assert condition(latest[0], "if-match") is None
    assert condition(latest[1], "if-match")
    assert condition(latest[1], "if-none-match") is None
    manifests = of(replica, "save_manifest")
    assert len(manifests) == len(latest), "each commit updates it"
    for manifest, save in zip(manifests, latest, strict=True):
        told = manifest[1]["manifest"]
        assert manifest[1] == base(home, chat, "save_manifest") | {"manifest": told}
        assert set(told) == {"schema_version", "updated_at"}
        assert told["schema_version"] == "1.0"
        assert TIME.fullmatch(told["updated_at"])
        assert told["updated_at"] >= save[1]["snapshot"]["created_at"]
    chat.end()
    (end,) = of(replica, "delete_session")
    assert end[1] == {"operation": "delete_session", "session_id": chat.session}


@pytest.mark.spread
def test_another_replica_reads_the_manifest_first(agents: Agents, provider: Provider) -> None:
    one, two = agents.pair()
    chat = Chat(one.server, provider)
    chat.say("One.")
    two.proxy.records = True
    beside = Chat(two.server, provider, session=chat.session)
    assert beside.say("Two.").turn == 2
    (manifest,) = of(two, "load_manifest")
    assert manifest[1] == base(two.home, chat, "load_manifest")


@pytest.mark.spread
def test_checkpoints_are_listed_as_the_contract_says(agents: Agents, provider: Provider) -> None:
    one = agents.pair()[0]
    home, chat = one.home, Chat(one.server, provider)
    chat.say("One.")
    proxy = home.store.proxy()
    proxy.records = True
    shown = home.run("sessions", "show", chat.session, **home.store.environment(proxy.address))
    assert shown.returncode == 0, shown
    listing = Replica(home, chat.server, proxy)
    lists = [one[1] for one in of(listing, "list_snapshot_ids")]
    scoped = [row for row in lists if row["scope"]["scope_id"] == home.agent_id]
    assert scoped
    for row in scoped:
        assert isinstance(row.pop("limit"), int)
        row.pop("start_after")
        assert row == base(home, chat, "list_snapshot_ids")
    proxy.close()


@pytest.mark.one_each
@pytest.mark.stores("custom-rest", "custom-lambda")
def test_a_load_is_tried_as_often_as_the_collection_says(
    agents: Agents, provider: Provider
) -> None:
    home = agents.home(attempts=3)
    replica = agents.fresh(home)
    chat = Chat(replica.server, provider)
    assert chat.say("Wake up.").turn == 1
    before = replica.proxy.accepted
    replica.proxy.mode = "cut"
    assert_failed(chat.say("One.", headers=JSON), 503, "store_unavailable", chat.session)
    assert replica.proxy.accepted - before in (2, 3), "the first may come on an open connection"
    replica.proxy.reset()
    assert chat.say("Two.").turn == 2


@pytest.mark.one_each
def test_the_turns_of_another_program_are_counted(one: Replica, provider: Provider) -> None:
    chat, home = Chat(one.server, provider), one.home
    for text in ("One.", "Two.", "Three."):
        chat.say(text)
    saved = home.store.snapshot(chat.session)
    specified = {"data": {"messages": saved["data"]["messages"]}, "schema_version": "1"}
    home.store.write(chat.session, json.dumps(specified).encode())
    words = command(home.project, "chat", "--session", chat.session)
    reached = home.store.environment(home.store.address)
    variables = {"PATH": os.environ["PATH"], "HOME": str(home.folder), **reached}
    undone = run(words, home.folder, variables, typed="/undo\n")
    assert undone.returncode == 0, undone
    assert home.store.turns(chat.session) == 2, undone
    assert chat.recalled("Four.") == echoed("One.", "Two.")
    assert chat.say("Five.").turn == 4


@pytest.mark.slow
def test_the_next_actor_owns_a_session_of_another_program(
    one: Replica, two: Replica, provider: Provider
) -> None:
    eve = Chat(one.server, provider, actor="eve")
    eve.say("One.")
    saved = one.home.store.snapshot(eve.session)
    assert saved
    messages = saved["data"]["messages"]
    specified = {"data": {"messages": messages}, "schema_version": "1"}
    one.home.store.write(eve.session, json.dumps(specified).encode())
    ada = Chat(one.server, provider, session=eve.session, actor="ada")
    assert ada.say("Two.").turn == 2
    assert [entry for entry in ada.recalled() if "One." in str(entry)]
    for server in (one.server, two.server):
        other = Chat(server, provider, session=eve.session, actor="eve")
        reply = other.say("Mine?", headers=JSON)
        assert_failed(reply, 403, "session_forbidden", eve.session)
    assert Chat(two.server, provider, session=eve.session, actor="ada").say("Three.").turn == 4


@pytest.mark.full
def test_a_turn_that_waits_makes_its_actor_the_owner(
    waiting_agents: Agents, provider: Provider
) -> None:
    replica = waiting_agents.fresh(waiting_agents.home())
    store = replica.home.store
    eve = Chat(replica.server, provider, actor="eve")
    eve.say("One.")
    messages = store.snapshot(eve.session)["data"]["messages"]
    specified = {"data": {"messages": messages}, "schema_version": "1"}
    store.write(eve.session, json.dumps(specified).encode())
    ada = Chat(replica.server, provider, session=eve.session, actor="ada")
    waiting = ask(ada, ["Deleted."])
    assert_failed(eve.say("Mine?", headers=JSON), 403, "session_forbidden", eve.session)
    assert ada.post({"approve": waiting}, JSON).turn == 2
