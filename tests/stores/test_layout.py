"""Where sessions are stored: keys, fields and objects exactly as specified."""

import re
from collections.abc import Callable
from functools import partial

import pytest

from tests.conformance.chat import Chat, assert_failed, echoed
from tests.conformance.client import JSON
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.stores.agents import CHECKPOINTS, Agents, Replica, on
from tests.stores.servers import LOCKED, wait_for
from tests.stores.stores import TTL, S3Store, ValkeyStore
from tests.stores.test_commands import UUID7


def has(objects: Callable[[], list[str]], count: int) -> bool:
    return len(objects()) == count


@pytest.mark.spread
@pytest.mark.stores("valkey")
def test_a_session_is_one_hash_of_valkey(chat: Chat, one: Replica) -> None:
    home = one.home
    for text in ("One.", "Two.", "Three.", "Four."):
        chat.say(text)
    store = home.store
    assert isinstance(store, ValkeyStore)
    key = f"session:{chat.session}:agent:{home.agent_id}"
    assert store.client.keys(f"*{chat.session}*") == [key.encode()]
    assert store.client.type(key) == b"hash"
    fields = sorted(name.decode() for name in store.client.hkeys(key))
    assert len([name for name in fields if UUID7.fullmatch(name.removeprefix("h:"))]) == CHECKPOINTS
    assert {name for name in fields if not name.startswith("h:")} == {"latest", "rev"}
    store.client.expire(key, TTL // 2)
    assert chat.say("Five.").turn == 5
    assert TTL // 2 < store.client.ttl(key) <= TTL, "the time begins anew with every turn"


@pytest.mark.spread
@pytest.mark.stores("s3")
def test_a_session_is_a_folder_of_the_bucket(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    for prefix in ("sessions/", ""):
        text = home.collection.read_text()
        home.collection.write_text(text if prefix else re.sub(r"\n  prefix: .*", "", text))
        chat = Chat(agents.fresh(home, CHECKPOINTS=2).server, provider)
        for words in ("One.", "Two.", "Three."):
            chat.say(words)
        store = home.store
        assert isinstance(store, S3Store)
        folder = f"{prefix}{chat.session}/agent/{home.agent_id}/snapshots/"
        objects = partial(store.keys, f"{prefix}{chat.session}/")
        # Those that are too many are deleted after the turn.
        wait_for("two checkpoints and the latest", partial(has, objects, 3))
        keys = objects()
        assert all(key.startswith(folder) for key in keys), keys
        names = [key.removeprefix(folder) for key in keys]
        history = [name for name in names if name.startswith("immutable_history/")]
        assert len(history) == 2
        for name in history:
            id = name.removeprefix("immutable_history/snapshot_").removesuffix(".json")
            assert UUID7.fullmatch(id), name
        assert sorted(set(names) - set(history)) == ["snapshot_latest.json"]


@pytest.mark.full
@pytest.mark.spread
@pytest.mark.stores("s3")
def test_a_lifecycle_rule_joins_those_that_are_there(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    store = home.store
    assert isinstance(store, S3Store)
    bucket = f"bucket-of-{home.agent_id}"
    store.client.create_bucket(Bucket=bucket)
    # Of others, of another project with the same collection, and of this one by an older version.
    *foreign, former = (
        {
            "ID": id,
            "Status": "Enabled",
            "Filter": {"Prefix": prefix},
            "Expiration": {"Days": 30},
        }
        for id, prefix in (("x", "logs/"), ("aml-b/sessions", "b/"), ("aml-sessions", "sessions/"))
    )
    store.client.put_bucket_lifecycle_configuration(
        Bucket=bucket, LifecycleConfiguration={"Rules": [*foreign, former]}
    )
    replica = agents.fresh(home, SECRETS_S3_SESSIONS=bucket)
    replica.proxy.records = True
    chat = Chat(replica.server, provider)
    for text in ("One.", "Two.", "Three."):
        chat.say(text)
    rules = store.client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert rules[:-1] == foreign
    ours = rules[-1]
    assert ours["ID"] == "aml-sessions/sessions"
    assert ours["Status"] == "Enabled"
    assert ours["Filter"] == {"Prefix": "sessions/"}
    assert ours["Expiration"] == {"Days": store.ttl_days}
    sent = b"".join(replica.proxy.sent)
    assert len(re.findall(rb"PUT /\S*\?lifecycle", sent)) == 1, "once in a process"
    again = agents.fresh(home, SECRETS_S3_SESSIONS=bucket)
    again.proxy.records = True
    Chat(again.server, provider).say("One.")
    assert b"PUT" in b"".join(again.proxy.sent)
    assert not re.findall(rb"PUT /\S*\?lifecycle", b"".join(again.proxy.sent)), "it is there"


@pytest.mark.full
@pytest.mark.spread
@pytest.mark.stores("s3")
def test_the_rule_goes_with_the_time_to_live(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    home.collection.write_text(re.sub(r"\n  ttl_days: .*", "", home.collection.read_text()))
    store, bucket = home.store, f"bucket-of-{home.agent_id}"
    assert isinstance(store, S3Store)
    store.client.create_bucket(Bucket=bucket)

    def rules() -> list[str]:
        try:
            found = store.client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        except store.client.exceptions.ClientError:
            return []
        return [f"{rule['ID']} {rule['Filter']['Prefix']}" for rule in found]

    ours, own, former, foreign = (
        {
            "ID": id,
            "Status": "Enabled",
            "Filter": {"Prefix": prefix},
            "Expiration": {"Days": 7},
            "NoncurrentVersionExpiration": {"NoncurrentDays": 7},
        }
        for id, prefix in (
            *(("aml-sessions/sessions", "sessions/"), ("aml-sessions", "sessions/")),
            *(("aml-sessions", "b/"), ("x", "logs/")),
        )
    )
    for given, left in (
        ([ours, foreign], ["x logs/"]),
        ([ours, own], []),
        ([former], ["aml-sessions b/"]),
    ):
        store.client.put_bucket_lifecycle_configuration(
            Bucket=bucket, LifecycleConfiguration={"Rules": given}
        )
        server = agents.fresh(home, SECRETS_S3_SESSIONS=bucket).server
        assert Chat(server, provider).say("One.").turn == 1
        if given != [former]:
            wait_for("the rules of others only", partial(has, rules, len(left)))
        server.signal()
        assert server.exit_code() == 0
        assert rules() == left


@pytest.mark.spread
@pytest.mark.stores("s3")
def test_a_bucket_whose_rules_cannot_be_changed_is_one_warning(
    agents: Agents, provider: Provider
) -> None:
    home = agents.home()
    store = home.store
    assert isinstance(store, S3Store)
    bucket = f"{LOCKED}{home.agent_id}"
    store.client.create_bucket(Bucket=bucket)
    one, two = (agents.fresh(home, SECRETS_S3_SESSIONS=bucket) for _ in range(2))
    chat = Chat(one.server, provider)
    for replica, texts in ((one, ("One.", "Two.")), (two, ("Three.", "Four."))):
        replica.proxy.records = True
        beside = on(replica.server, chat)
        for text in texts:
            assert beside.say(text).status == 200
            wait_for("a warning", partial(warnings_of, replica.server))
        (warning,) = warnings_of(replica.server)
        assert "lifecycle rule" in warning
        assert re.search(r"AccessDenied.* HTTP 403|AccessDenied \(HTTP 403\)", warning)
        sent = b"".join(replica.proxy.sent)
        assert len(re.findall(rb"PUT /\S*\?lifecycle", sent)) == 1, "once in a process"
    assert chat.recalled() == echoed("One.", "Two.", "Three.", "Four.")
    assert [len(warnings_of(replica.server)) for replica in (one, two)] == [1, 1]
    with pytest.raises(store.client.exceptions.ClientError, match="NoSuchLifecycleConfiguration"):
        store.client.get_bucket_lifecycle_configuration(Bucket=bucket)


@pytest.mark.spread
@pytest.mark.stores("s3")
def test_a_write_that_s3_asks_to_try_again_is_tried_again(chat: Chat, one: Replica) -> None:
    store = one.home.store
    assert isinstance(store, S3Store)
    for turn, text in enumerate(("One.", "Two."), 1):  # a first write, and one that replaces it
        store.conflict(2)
        assert chat.say(text).turn == turn
    store.conflict(3)
    assert_failed(chat.say("Three.", headers=JSON), 409, "session_conflict", chat.session)
    store.conflict(0)
    assert chat.recalled() == echoed("One.", "Two.")


@pytest.mark.full
@pytest.mark.spread
@pytest.mark.stores("s3")
def test_a_bucket_that_keeps_versions_is_a_warning(agents: Agents) -> None:
    home = agents.home()
    store = home.store
    assert isinstance(store, S3Store)
    bucket = f"versions-{home.agent_id}"
    store.client.create_bucket(Bucket=bucket)
    for status in ("", "Enabled", "Suspended"):
        if status:
            change = {"Status": status}
            store.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=change)
        result = home.run("check", "--connect", SECRETS_S3_SESSIONS=bucket)
        assert result.returncode == 0, result
        assert ("AML-W162 The bucket keeps old versions" in result.stdout) == bool(status)


def warnings_of(server: Server) -> list[str]:
    """What the log of a server says about the lifecycle rule."""
    return [line for line in server.log.splitlines() if "lifecycle" in line.lower()]
