"""Another kind of store: one command brings its adapter; and secrets are only references."""

import json

import pytest

from tests.conformance.chat import Chat, echoed
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.stores.agents import Agents, Replica, assert_clean
from tests.stores.stores import AWS, SENTINEL, STORES, s3_client


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


def secrets_manager(agents: Agents) -> dict[str, str]:
    host, port = agents.backing.s3  # which has a Secrets Manager, too
    return {**AWS, "AWS_ENDPOINT_URL_SECRETS_MANAGER": f"http://{host}:{port}"}


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
    name = f"secrets/{home.agent_id}/valkey"
    text = home.collection.read_text()
    home.collection.write_text(text.replace("secrets/valkey/sessions", name))
    old, new = home.store.proxy(), home.store.proxy()
    client = s3_client(agents.backing.s3, "secretsmanager")
    urls = [f"valkey://:{SENTINEL}@127.0.0.1:{proxy.port}" for proxy in (old, new)]
    client.create_secret(Name=name, SecretString=urls[0])
    variables = {**secrets_manager(agents), "SECRET_CACHE_SECONDS": "0"}
    server = agents.fresh(home, SECRETS_VALKEY_SESSIONS="", **variables).server
    chat = Chat(server, provider)
    assert chat.say("One.").turn == 1
    assert (old.bytes > 0, new.bytes) == (True, 0)
    client.put_secret_value(SecretId=name, SecretString=urls[1])
    old.refuse()
    assert chat.say("Two.").turn == 2
    assert new.bytes > 0
    assert chat.recalled() == echoed("One.", "Two.")
    old.close()
    new.close()


@pytest.mark.stores("valkey")
@pytest.mark.spread
def test_a_secret_that_is_missing_keeps_the_server_from_starting(agents: Agents) -> None:
    home = agents.home()
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
