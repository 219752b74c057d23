"""Another kind of store: one command brings its adapter; and secrets are only references."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import valkey

from tests.conformance.chat import Chat, echoed
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.stores.agents import Agents, Home, Replica, assert_clean
from tests.stores.proxy import Proxy
from tests.stores.servers import reference_endpoint, valkey_server, wait_for
from tests.stores.stores import AWS, SENTINEL, STORES, s3_client


@pytest.mark.full
@pytest.mark.one_each
def test_an_adapter_that_is_missing_is_brought_by_one_command(
    agents: Agents, provider: Provider
) -> None:
    """Of the files that are deployed only the collection changes; then the other render serves."""
    home = agents.home()
    files = {path: path.read_bytes() for path in home.folder.rglob("*") if path.is_file()}
    del files[home.collection]
    other = STORES[(STORES.index(home.store.name) + 2) % len(STORES)]
    store = home.declare(other)
    found = home.run("check")
    assert found.returncode == 1, found
    line = 1 + home.collection.read_text().splitlines().index(f'  type: "{store.answer}"')
    place = f"collections/{home.collection.name}:{line} AML-E10D "
    command = f"uvx copier update --defaults -r :current: -d session_store={store.answer} -x "
    (missing,) = [line for line in found.stdout.splitlines() if line.startswith(place)]
    assert command in missing
    server = agents.fresh(home).server
    assert server.exit_code() == 1
    assert missing in server.log
    assert "Traceback" not in server.log

    home.bring(other)
    chat = Chat(agents.fresh(home).server, provider)
    assert [chat.say(text).turn for text in ("One.", "Two.")] == [1, 2]
    assert chat.recalled() == echoed("One.", "Two.")
    assert store.turns(chat.session) == 3
    assert {path: path.read_bytes() for path in files} == files


def secrets_manager(agents: Agents, proxy: Proxy | None = None) -> dict[str, str]:
    host, port = proxy.address if proxy else agents.backing.s3  # which has a Secrets Manager, too
    return {**AWS, "AWS_ENDPOINT_URL_SECRETS_MANAGER": f"http://{host}:{port}"}


def in_secrets_manager(
    agents: Agents, home: Home, old: str, value: str, prefix: str = ""
) -> Callable[[str], Any]:
    """Put a value into a secret that the collection names in place of `old`; return `rotate`."""
    name = f"secrets/{home.agent_id}/store"
    home.collection.write_text(home.collection.read_text().replace(old, name))
    client = s3_client(agents.backing.s3, "secretsmanager")
    name = prefix + name
    client.create_secret(Name=name, SecretString=value)
    return lambda new: client.put_secret_value(SecretId=name, SecretString=new)


@pytest.mark.stores("valkey")
@pytest.mark.spread
def test_a_secret_may_be_a_field_of_a_json_secret(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    text = home.collection.read_text()
    home.collection.write_text(
        text.replace('"secrets/valkey/sessions"', '"secrets/valkey/sessions#url"')
    )
    url = home.store.environment(home.store.address)["SECRETS_VALKEY_SESSIONS"]
    server = agents.fresh(home, SECRETS_VALKEY_SESSIONS=json.dumps({"url": url, "x": 1})).server
    chat = Chat(server, provider)
    assert chat.say("One.").turn == 1
    assert home.store.turns(chat.session) == 1


@pytest.mark.stores("valkey")
@pytest.mark.spread
def test_a_secret_of_secrets_manager_may_be_rotated(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    old, new = home.store.proxy(), home.store.proxy()
    urls = [f"valkey://:{SENTINEL}@127.0.0.1:{proxy.port}" for proxy in (old, new)]
    rotate = in_secrets_manager(agents, home, "secrets/valkey/sessions", urls[0])
    variables = {**secrets_manager(agents), "SECRET_CACHE_SECONDS": "0"}
    server = agents.fresh(home, SECRETS_VALKEY_SESSIONS="", **variables).server
    chat = Chat(server, provider)
    assert chat.say("One.").turn == 1
    assert (old.bytes > 0, new.bytes) == (True, 0)
    rotate(urls[1])
    old.refuse()
    assert chat.say("Two.").turn == 2
    assert new.bytes > 0
    assert chat.recalled() == echoed("One.", "Two.")
    old.close()
    new.close()


@pytest.mark.stores("valkey")
@pytest.mark.spread
def test_an_expired_secret_is_read_once_and_an_outage_of_secrets_manager_is_none_of_the_agent(
    agents: Agents, provider: Provider
) -> None:
    home, aws = agents.home(), Proxy(agents.backing.s3)
    url = home.store.environment(home.store.address)["SECRETS_VALKEY_SESSIONS"]
    in_secrets_manager(agents, home, "secrets/valkey/sessions", url)
    variables = {**secrets_manager(agents, aws), "SECRET_CACHE_SECONDS": "1"}
    server = agents.fresh(home, SECRETS_VALKEY_SESSIONS="", **variables).server
    chats = [Chat(server, provider) for _ in range(20)]
    assert chats[0].say("One.").turn == 1
    time.sleep(1.1)
    aws.records, began = True, time.monotonic()
    with ThreadPoolExecutor(len(chats)) as pool:
        turns = [reply.turn for reply in pool.map(lambda chat: chat.say("Two."), chats)]
    assert turns == [2, *[1] * 19]
    # The turns did not wait for it.
    wait_for("a read of the secret", lambda: b"GetSecretValue" in b"".join(aws.sent))
    assert b"".join(aws.sent).count(b"GetSecretValue") <= 1 + time.monotonic() - began

    aws.mode = "hang"
    time.sleep(1.1)
    assert chats[0].say("Three.").turn == 3
    aws.refuse()
    wait_for("a line in the log", lambda: "using its last value" in server.log)
    assert chats[0].say("Four.").turn == 4
    aws.close()


@pytest.mark.stores("valkey")
@pytest.mark.spread
def test_a_password_that_was_rotated_costs_no_turn(
    agents: Agents, provider: Provider, tmp_path: Path
) -> None:
    home = agents.home()
    with valkey_server(tmp_path) as (host, port):
        url = f"valkey://{host}:{port}"
        prefix = f"{home.agent_id}/"
        rotate = in_secrets_manager(agents, home, "secrets/valkey/sessions", url, prefix)
        variables = {**secrets_manager(agents), "SECRETS_PREFIX": prefix}
        server = agents.fresh(home, SECRETS_VALKEY_SESSIONS="", **variables).server
        chat, owner = Chat(server, provider), valkey.Valkey(host, port)
        assert chat.say("One.").turn == 1
        for turn, password in ((2, f"{SENTINEL}-2"), (3, f"{SENTINEL}-3")):  # NOAUTH, WRONGPASS
            rotate(f"valkey://:{password}@{host}:{port}")
            owner.config_set("requirepass", password)
            owner.client_kill_filter(_type="normal", skipme=True)
            time.sleep(0.2)
            assert chat.say("Next.").turn == turn


@pytest.mark.stores("custom-rest")
@pytest.mark.spread
def test_a_token_that_was_rotated_costs_no_turn(
    agents: Agents, provider: Provider, tmp_path: Path
) -> None:
    home, data, tokens = agents.home(), tmp_path / "sqlite", [f"{SENTINEL}-{n}" for n in "12"]
    text = home.collection.read_text().replace('source: "env"', 'source: "aws_secrets_manager"')
    home.collection.write_text(text.replace('name: "SESSIONS_TOKEN"', 'secret_id: "TOKEN"'))
    rotate = in_secrets_manager(agents, home, "TOKEN", tokens[0])
    with (
        reference_endpoint(tmp_path / "1", data, tokens[0]) as old,
        reference_endpoint(tmp_path / "2", data, tokens[1]) as new,
    ):
        proxy = Proxy(old)
        variables = {**secrets_manager(agents), "SESSIONS_URL": proxy.url}
        chat = Chat(agents.fresh(home, **variables).server, provider)
        assert chat.say("One.").turn == 1
        rotate(tokens[1])
        proxy.behind = new
        proxy.cut()
        assert chat.say("Two.").turn == 2
        proxy.close()


@pytest.mark.full
@pytest.mark.stores("valkey")
@pytest.mark.spread
def test_a_secret_that_is_missing_keeps_the_server_from_starting(agents: Agents) -> None:
    home = agents.home()
    checked = home.run("check", SECRETS_VALKEY_SESSIONS="")
    assert checked.returncode == 0, checked
    assert "SECRETS_VALKEY_SESSIONS" in checked.stdout
    assert "`serve` refuses to start with a model" in checked.stdout
    model = {**home.target.provider("http://127.0.0.1:9"), "SECRETS_VALKEY_SESSIONS": ""}
    connected = home.run("check", "--connect", **model)
    assert connected.returncode == 1, connected
    assert "AML-E160 No session can be loaded: " in connected.stdout
    nowhere = {**AWS, "AWS_ENDPOINT_URL_SECRETS_MANAGER": "http://127.0.0.1:9"}
    for variables in (nowhere, secrets_manager(agents)):
        server = agents.fresh(home, SECRETS_VALKEY_SESSIONS="", **variables).server
        assert server.exit_code() == 1
        assert "secrets/valkey/sessions" in server.log
        assert "SECRETS_VALKEY_SESSIONS" in server.log
        assert "Traceback" not in server.log
        assert len(server.log.strip().splitlines()) == 1, server.log


@pytest.mark.stores("valkey")
@pytest.mark.spread
def test_without_a_model_and_a_secret_sessions_live_in_the_process(agents: Agents) -> None:
    home = agents.home()
    server = Server(home.target, home.folder, None, {})
    try:
        reply = server.post({"prompt": "Hello."})
        assert reply.turn == 1
        assert "SECRETS_VALKEY_SESSIONS" in server.log
    finally:
        server.stop()


@pytest.mark.full
@pytest.mark.one_each
def test_a_secret_is_in_no_error_no_log_and_no_file(
    agents: Agents, chat: Chat, one: Replica
) -> None:
    home, replica = one.home, one
    bodies = [chat.say("One.").body]
    for mode in ("cut", "refuse"):
        replica.proxy.mode = mode
        if mode == "refuse":
            replica.proxy.refuse()
        bodies += [chat.say("Two.").body, chat.end().body]
    replica.proxy.reset()
    # The store itself refuses the secret: it is another one.
    wrong = {
        name: value.replace(SENTINEL, f"{SENTINEL}-wrong")
        for name, value in home.store.environment(home.store.address).items()
    }
    stranger = agents.fresh(home, **wrong)
    if home.store.name in ("valkey", "custom-rest"):  # the others do not look at signatures here
        reply = stranger.server.post({"prompt": "Hello."})
        assert (reply.status, reply.error) == (503, "store_unavailable")
        bodies.append(reply.body)
    result = home.run("sessions", "show", chat.session, **wrong)
    assert_clean(result.stdout + result.stderr)
    assert all(SENTINEL.encode() not in body for body in bodies)
    replica.server.settle()
    assert_clean(replica.server.log + stranger.server.log)
    for folder in (home.folder, home.project):
        files = (p for p in folder.rglob("*") if p.is_file() and ".venv" not in p.parts)
        for path in files:
            assert SENTINEL.encode() not in path.read_bytes(), path
    assert SENTINEL not in home.store.everything()
