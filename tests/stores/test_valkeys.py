"""What else speaks Valkey's protocol: a cluster, TLS, and Redis 7."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import valkey

from tests.conformance.chat import Chat, assert_failed, echoed
from tests.conformance.client import JSON, KEY
from tests.conformance.provider import Provider
from tests.conformance.steps import Hold
from tests.stores.agents import HASTY, Agents, Replica, on
from tests.stores.proxy import Proxy
from tests.stores.servers import (
    Address,
    TlsFront,
    redis_7,
    valkey_cluster,
    valkey_server,
    wait_for,
)
from tests.stores.stores import SENTINEL, ValkeyStore
from tests.stores.test_swap import in_secrets_manager, secrets_manager

pytestmark = pytest.mark.stores("valkey")
LAST_SLOT = 5460  # of the first of three nodes


def started(
    start: Callable[[Path], AbstractContextManager[Address]], factory: pytest.TempPathFactory
) -> Iterator[Address]:
    with start(factory.mktemp("valkeys")) as address:
        yield address


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    yield from started(valkey_cluster, tmp_path_factory)


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    yield from started(redis_7, tmp_path_factory)


def works(agents: Agents, provider: Provider, **variables: str) -> list[str]:
    """A session on two replicas: turns, a conflict, checkpoints, an end. Returns its sessions."""
    home = agents.home()
    servers = [agents.fresh(home, CHECKPOINTS=2, **variables).server for _ in range(2)]
    chats = [Chat(servers[0], provider) for _ in range(4)]
    for chat in chats:
        beside, gate = on(servers[1], chat), threading.Event()
        assert [chat.say("One.").turn, beside.say("Two.").turn] == [1, 2]
        loser = chat.start("Loses.", [Hold(gate), "Lost."], headers=JSON)
        chat.call("Loses.")
        assert beside.say("Three.").turn == 3
        gate.set()
        assert_failed(loser.reply(), 409, "session_conflict", chat.session)
        assert chat.recalled() == echoed("One.", "Two.", "Three.")
    checked = home.run("check", "--connect", **variables)
    assert checked.returncode == 0, checked
    assert "saves nothing to disk" in checked.stdout
    listed = home.run("sessions", "list", **variables)
    assert listed.returncode == 0, listed
    assert all(chat.session in listed.stdout for chat in chats)
    chats[0].end()
    assert on(servers[1], chats[0]).recalled() == []
    return [f"session:{chat.session}:agent:{home.agent_id}" for chat in chats]


@pytest.mark.spread
def test_a_cluster(agents: Agents, provider: Provider, cluster: Address) -> None:
    url = f"valkey://{cluster[0]}:{cluster[1]}"
    keys = works(agents, provider, SECRETS_VALKEY_SESSIONS=url)
    client: Any = valkey.ValkeyCluster(*cluster)
    assert len({client.keyslot(key) for key in keys}) > 1
    for key in keys:
        assert sum(name.startswith(b"h:") for name in client.hkeys(key)) <= 2
        assert client.hexists(key, "latest")


@pytest.mark.full
@pytest.mark.spread
def test_a_save_to_a_cluster_whose_reply_was_lost_is_looked_up(
    agents: Agents, provider: Provider, tmp_path: Path
) -> None:
    """A client may try again by itself, and its last error is that it cannot connect."""
    with valkey_cluster(tmp_path) as first:
        node: Any = valkey.Valkey(*first)
        client: Any = valkey.ValkeyCluster(*first)
        primaries = client.get_primaries()
        beside = next((one.host, one.port) for one in primaries if one.port != first[1])
        proxy = Proxy(first, ValkeyStore.is_save)
        node.config_set("cluster-announce-port", proxy.port)
        other: Any = valkey.Valkey(*beside)
        wait_for("the port", lambda: f":{proxy.port}" in str(other.cluster("NODES")))
        home = agents.home()
        assert isinstance(home.store, ValkeyStore)
        url = f"valkey://{beside[0]}:{beside[1]}"
        server = agents.fresh(home, SECRETS_VALKEY_SESSIONS=url).server
        chat = Chat(server, provider)
        while node.cluster("KEYSLOT", home.store.key(chat.session)) > LAST_SLOT:
            chat = Chat(server, provider)
        assert chat.say("One.").turn == 1
        proxy.at_save = "hold reply"
        lost = chat.start("Two.", headers={**JSON, KEY: "key-2"})
        proxy.wait_held()
        proxy.refuse()
        assert_failed(lost.reply(), 503, "store_unavailable", chat.session)
        unknown = f"session {chat.session}: it is unknown whether the turn was saved"
        wait_for("a line in the log", lambda: unknown in server.log)
        proxy.reset()
        assert chat.say("Two.", headers={**JSON, KEY: "key-2"}).turn == 2
        assert len(chat.calls("Two.")) == 1
        proxy.close()


@pytest.mark.spread
def test_tls(agents: Agents, provider: Provider, tmp_path: Path) -> None:
    front = TlsFront(agents.backing.valkey, tmp_path)
    trusted = {"SSL_CERT_FILE": str(front.ca), "NODE_EXTRA_CA_CERTS": str(front.ca)}
    home = agents.home()
    plain = home.store.environment(("localhost", front.port))["SECRETS_VALKEY_SESSIONS"]
    url = plain.replace("valkey://", "valkeys://")
    works(agents, provider, SECRETS_VALKEY_SESSIONS=url, **trusted)
    stranger = agents.fresh(home, SECRETS_VALKEY_SESSIONS=url)
    reply = stranger.server.post({"prompt": "Hello."}, JSON)
    assert (reply.status, reply.error) == (503, "store_unavailable"), "nobody vouches for it"
    reasons = (
        "self-signed certificate in certificate chain",
        "unable to get local issuer certificate",
        "SELF_SIGNED_CERT_IN_CHAIN",
        "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
    )
    assert any(reason in stranger.server.log for reason in reasons), stranger.server.log
    front.close()


@pytest.mark.spread
def test_sessions_are_in_the_database_of_the_url_and_nowhere_else(
    agents: Agents, provider: Provider
) -> None:
    home = agents.home()
    url = home.store.environment(home.store.address)["SECRETS_VALKEY_SESSIONS"]
    chat = Chat(agents.fresh(home, SECRETS_VALKEY_SESSIONS=f"{url}/3").server, provider)
    assert chat.say("One.").turn == 1
    client: Any = valkey.Valkey(*home.store.address, password=SENTINEL, db=3)
    assert client.hexists(f"session:{chat.session}:agent:{home.agent_id}", "latest")
    missing = {"SECRETS_VALKEY_SESSIONS": f"{url}/99"}
    for _ in range(2):
        reply = agents.fresh(home, **missing).server.post({"prompt": "Hello."}, JSON)
        assert (reply.status, reply.error) == (503, "store_unavailable"), reply
    checked = home.run("check", "--connect", **missing)
    assert (checked.returncode, "AML-E160" in checked.stdout) == (1, True), checked


@pytest.mark.full
@pytest.mark.slow
def test_redis_7(agents: Agents, provider: Provider, redis: Address) -> None:
    works(agents, provider, SECRETS_VALKEY_SESSIONS=f"redis://{redis[0]}:{redis[1]}")


def fail_over(primary: Any, replica: Any) -> None:
    """Let the two change places, as before the maintenance of a server."""
    wait_for("a link", lambda: replica.info("replication")["master_link_status"] == "up")
    wait_for("a replica", lambda: primary.info("replication")["slave0"]["state"] == "online")
    primary.execute_command("FAILOVER")
    wait_for("a failover", lambda: replica.role()[0] + primary.role()[0] == b"masterslave")


@pytest.mark.spread
def test_a_planned_failover_costs_no_turn(
    agents: Agents, provider: Provider, tmp_path: Path
) -> None:
    """The old primary lives on as a replica, and keeps the connections that it has."""
    at_once = ["--repl-diskless-sync-delay", "0"]
    with (
        valkey_server(tmp_path / "1", at_once) as first,
        valkey_server(tmp_path / "2", at_once) as second,
    ):
        old, new = valkey.Valkey(*first), valkey.Valkey(*second)
        proxy = Proxy(first)
        url = f"valkey://{proxy.address[0]}:{proxy.address[1]}"
        server = agents.fresh(agents.home(), SECRETS_VALKEY_SESSIONS=url).server
        chat = Chat(server, provider)
        assert chat.say("One.").turn == 1
        new.replicaof(*first)
        fail_over(old, new)
        accepted, proxy.behind = proxy.accepted, second
        assert chat.say("Two.").turn == 2
        assert proxy.accepted > accepted
        assert len(chat.calls("Two.")) == 1

        # While the name still leads to the old one turns fail: but for the first, before the model.
        fail_over(new, old)
        assert_failed(chat.say("Lost.", headers=JSON), 503, "store_unavailable", chat.session)
        assert_failed(chat.say("No call.", headers=JSON), 503, "store_unavailable", chat.session)
        assert chat.calls("No call.") == []
        proxy.behind = first
        assert chat.say("Three.").turn == 3
        assert chat.recalled() == echoed("One.", "Two.", "Three.")
        proxy.close()


@contextmanager
def replicated(folder: Path) -> Iterator[tuple[Address, Address, Proxy]]:
    """A primary, its replica, and the proxy through which the replica follows."""
    at_once = ["--repl-diskless-sync-delay", "0"]
    with (
        valkey_server(folder / "1", at_once) as first,
        valkey_server(folder / "2", at_once) as second,
    ):
        link = Proxy(first)
        primary: Any = valkey.Valkey(*first)
        replica: Any = valkey.Valkey(*second)
        replica.replicaof(*link.address)
        wait_for("a link", lambda: replica.info("replication")["master_link_status"] == "up")
        wait_for("a replica", lambda: primary.info("replication")["slave0"]["state"] == "online")
        yield first, second, link
        link.close()


@pytest.mark.spread
def test_turns_that_a_failover_lost_are_reported(
    agents: Agents, provider: Provider, tmp_path: Path
) -> None:
    with replicated(tmp_path) as (first, second, link):
        proxy = Proxy(first)
        url = f"valkey://{proxy.address[0]}:{proxy.address[1]}"
        server = agents.fresh(agents.home(), SECRETS_VALKEY_SESSIONS=url).server
        chat, key = Chat(server, provider), {"Idempotency-Key": "again"}
        assert chat.say("One.").turn == 1
        primary: Any = valkey.Valkey(*first)
        assert primary.wait(1, 10_000) == 1
        link.mode = "hang"
        assert [chat.say("Two.").turn, chat.say("Three.").turn] == [2, 3]
        link.close()
        replica: Any = valkey.Valkey(*second)
        replica.replicaof("NO", "ONE")
        proxy.behind = second
        proxy.cut()
        assert_failed(chat.say("Fails.", []), 502, "empty_reply", chat.session)
        body = {"session_id": chat.session, "turn": 2, "model": "test-model"}
        rolled_back = {**body, "rolled_back": True}
        assert chat.say("Four.", headers=key).events[-1] == ("done", rolled_back)
        replayed = chat.say("Four.", headers={**key, **JSON}).json
        assert replayed.pop("reply") == "You said: Four."
        assert {**replayed, "model": "test-model"} == rolled_back
        assert chat.recalled() == echoed("One.", "Four.")
        assert chat.say("Five.").events[-1] == ("done", {**body, "turn": 4})
        warning = f"session {chat.session}: the store has lost turns that this process has seen"
        assert server.log.count(warning) == 1
        proxy.close()


@pytest.mark.spread
def test_a_clock_that_is_slow_is_no_failover(agents: Agents, chat: Chat, beside: Chat) -> None:
    """What another process saves sorts after what it replaces, whatever its clock says."""
    store = agents.pair()[0].home.store
    assert chat.say("One.").turn == 1
    future = "f0000000-0000-7000-8000-000000000000"
    assert isinstance(store, ValkeyStore)
    store.client.hset(store.key(chat.session), "rev", future)
    for number, one in enumerate((chat, beside, chat), 2):
        done = {"session_id": chat.session, "turn": number, "model": "test-model"}
        assert one.say(f"Turn {number}.").events[-1] == ("done", done)
    assert store.client.hget(store.key(chat.session), "rev").decode() > future


@pytest.mark.spread
def test_a_turn_waits_for_a_replica_if_the_owner_wants_it(
    agents: Agents, provider: Provider, tmp_path: Path
) -> None:
    with replicated(tmp_path) as (first, second, link):
        home = agents.home()
        wanted = {"SECRETS_VALKEY_SESSIONS": f"valkey://{first[0]}:{first[1]}"}
        wanted |= {"VALKEY_WAIT_REPLICAS": "1", "STORE_TIMEOUT_SECONDS": "3"}
        server = agents.fresh(home, **wanted).server
        chat = Chat(server, provider)
        replica: Any = valkey.Valkey(*second)
        key = f"session:{chat.session}:agent:{home.agent_id}"
        for number in range(1, 6):
            assert chat.say(f"Turn {number}.").turn == number
            snapshot = json.loads(replica.hget(key, "latest"))
            assert snapshot["app_data"]["turn"] == number
        warning = f"session {chat.session}: changed, but only 0 of 1 replicas confirmed it"
        assert warning not in server.log
        link.mode = "hang"
        assert chat.say("Six.").turn == 6
        assert warning in server.log
        assert chat.end().json["ended"]
        assert server.log.count(warning) == 2


@pytest.mark.full
@pytest.mark.slow
def test_a_cluster_without_replicas_confirms_nothing(
    agents: Agents, provider: Provider, cluster: Address
) -> None:
    wanted = {"SECRETS_VALKEY_SESSIONS": f"valkey://{cluster[0]}:{cluster[1]}"}
    wanted |= {"VALKEY_WAIT_REPLICAS": "1", "STORE_TIMEOUT_SECONDS": "1"}
    server = agents.fresh(agents.home(), **wanted).server
    for _ in range(4):
        chat = Chat(server, provider)
        assert [chat.say("One.").turn, chat.say("Two.").turn] == [1, 2]
        assert chat.recalled() == echoed("One.", "Two.")
        assert f"session {chat.session}: changed, but only 0 of 1" in server.log


@pytest.mark.full
@pytest.mark.slow
def test_a_secret_of_a_cluster_may_be_rotated_in_a_turn_that_waits_for_replicas(
    agents: Agents, provider: Provider, cluster: Address
) -> None:
    home, port = agents.home(), cluster[1]
    prefix, gate = f"{home.agent_id}/", threading.Event()
    name, first = "secrets/valkey/sessions", f"valkey://127.0.0.1:{port}"
    rotate = in_secrets_manager(agents, home, name, first, prefix)
    wanted = {**secrets_manager(agents), "SECRETS_PREFIX": prefix, "SECRET_CACHE_SECONDS": "0"}
    wanted |= {"VALKEY_WAIT_REPLICAS": "1", "SECRETS_VALKEY_SESSIONS": ""}
    chat = Chat(agents.fresh(home, **wanted).server, provider)
    assert chat.say("One.").turn == 1
    running = chat.start("Two.", [Hold(gate), "Two."])
    chat.call("Two.")
    rotate(f"valkey://localhost:{port}")
    gate.set()
    assert running.reply().turn == 2


@pytest.mark.full
@pytest.mark.slow
def test_a_save_that_waits_for_replicas_leaves_no_connection_to_a_server_that_hangs(
    agents: Agents, provider: Provider
) -> None:
    one = agents.fresh(agents.home(), VALKEY_WAIT_REPLICAS=1, STORE_TIMEOUT_SECONDS=HASTY)
    chat, gate = Chat(one.server, provider), threading.Event()
    running = chat.start("One.", [Hold(gate), "One."], headers=JSON)
    chat.call("One.")
    one.proxy.mode = "hang"
    gate.set()
    assert_failed(running.reply(), 503, "store_unavailable", chat.session)
    wait_for("the end of all connections", lambda: one.proxy.connections() == 0)


@pytest.mark.full
def test_check_warns_about_losses_in_a_failover(agents: Agents, tmp_path: Path) -> None:
    home = agents.home()
    with replicated(tmp_path) as (first, _, _):
        wanted = {"SECRETS_VALKEY_SESSIONS": f"valkey://{first[0]}:{first[1]}"}
        primary: Any = valkey.Valkey(*first)
        for number, is_told in ((0, True), (1, False)):
            primary.config_set("min-replicas-to-write", number)
            checked = home.run("check", "--connect", **wanted)
            assert checked.returncode == 0, checked
            assert ("min-replicas-to-write is 0" in checked.stdout) == is_told, checked
            assert "VALKEY_WAIT_REPLICAS" not in checked.stdout
        checked = home.run("check", "--connect", VALKEY_WAIT_REPLICAS="2", **wanted)
        assert "VALKEY_WAIT_REPLICAS is 2, but the server has only 1" in checked.stdout, checked


@pytest.mark.spread
def test_a_key_of_another_type_is_quarantined(chat: Chat, one: Replica) -> None:
    store = one.home.store
    assert isinstance(store, ValkeyStore)
    store.client.set(store.key(chat.session), "of another program")
    shown = one.home.run("sessions", "show", chat.session)
    assert shown.stdout.startswith(f"session {chat.session}: unreadable, "), shown
    assert_failed(chat.say("One.", headers=JSON), 409, "session_corrupt", chat.session)
    (dump,) = store.quarantined(chat.session)
    store.client.restore("elsewhere", 0, dump, replace=True)
    assert store.client.get("elsewhere") == b"of another program"
    assert chat.say("Two.").turn == 1
    assert chat.recalled() == echoed("Two.")
    assert len(store.quarantined(chat.session)) == 1


@pytest.mark.one_each
def test_a_bare_host_has_the_port_of_the_collection(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    host, port = home.store.address
    text = home.collection.read_text()
    home.collection.write_text(text.replace("  key_prefix:", f"  port: {port}\n  key_prefix:"))
    plain = home.store.environment((host, 1))["SECRETS_VALKEY_SESSIONS"]
    bare = plain.removeprefix("valkey://").rpartition(":")[0]
    chat = Chat(agents.fresh(home, SECRETS_VALKEY_SESSIONS=bare).server, provider)
    assert chat.say("One.").turn == 1
    assert home.store.turns(chat.session) == 1
