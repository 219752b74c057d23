"""What is stored is looked at before it is believed, and never overwritten unread."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.chat import Chat, assert_failed, echoed
from tests.conformance.client import JSON
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.steps import Hold
from tests.conformance.targets import TARGETS
from tests.stores.agents import SETTINGS, Agents, Replica, on, with_store
from tests.stores.servers import wait_for
from tests.stores.stores import BUCKET, S3Store, Store

MOST = 20_000  # MAX_SNAPSHOT_BYTES of a replica that takes no more


def changed(**keys: Any) -> Callable[[bytes], bytes]:
    return lambda data: json.dumps({**json.loads(data), **keys}).encode()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[: len(data) // 2],
    "no object": lambda _: b"[1, 2]",
    "of turn 0": changed(app_data={"actor": None, "turn": 0, "key": None, "reply": ""}),
    "empty": lambda _: b"",
    "of data that is no object": changed(data="x"),
}
USUAL = ("truncated",)
# What another program or a newer version may have stored, and what its caller is told.
FOREIGN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "of a newer schema": (changed(schema_version="2.0"), "its schema version is not 1.0"),
    "of many agents": (changed(scope="multi_agent"), "it does not belong to a single agent"),
    "without a record": (lambda data: without_record(data), "it has no record of the turns"),
}


def without_record(data: bytes) -> bytes:
    snapshot = json.loads(data)
    del snapshot["app_data"]
    snapshot["data"]["state"] = {}
    return json.dumps(snapshot).encode()


# What cannot be told from an endpoint that is broken. A Lambda function's answer is always JSON.
BROKEN = {
    "custom-rest": ("empty", "no object"),
    "custom-lambda": ("empty", "no object", "truncated"),
}


def assert_quarantined(
    chat: Chat, other: Chat, replica: Replica, damaged: bytes, damage: str
) -> None:
    """The next turn fails, the bytes are kept, and the session begins anew."""
    store = replica.home.store
    if damage in BROKEN.get(store.name, ()):
        reply = chat.say("Two.", headers=JSON)
        assert_failed(reply, 503, "store_unavailable", chat.session)
        assert store.read(chat.session) == damaged
        return
    reply = chat.say("Two.", headers=JSON)
    assert_failed(reply, 409, "session_corrupt", chat.session)
    assert chat.calls("Two.") == []
    assert_kept(store, chat.session, damaged)
    assert store.snapshot(chat.session) is None
    wait_for("a line in the log", lambda: chat.session in replica.server.log)
    assert other.say("Three.").turn == 1
    assert chat.recalled() == echoed("Three.")
    assert_kept(store, chat.session, damaged)


def assert_refused(chat: Chat, replica: Replica, stored: bytes, reason: str) -> None:
    """Each turn fails with the reason, and what is stored stays where it is."""
    for _ in range(2):
        reply = chat.say("Two.", headers=JSON)
        assert_failed(reply, 409, "session_foreign", chat.session)
        assert reason in reply.json["error"]["message"]
        assert replica.home.store.read(chat.session) == stored
    assert chat.calls("Two.") == []
    assert replica.home.store.quarantined(chat.session) == []
    wait_for("a line in the log", lambda: "session_foreign" in replica.server.log)


def assert_kept(store: Store, session: str, damaged: bytes) -> None:
    """What was quarantined is this, byte for byte; a Lambda function's answer, value for value."""
    (aside,) = store.quarantined(session)
    if store.name == "custom-lambda":
        assert json.loads(aside) == json.loads(damaged)
    else:
        assert aside == damaged


@pytest.mark.spread
@pytest.mark.parametrize("damage", USUAL)
def test_a_snapshot_that_cannot_be_read_is_quarantined(
    chat: Chat, beside: Chat, one: Replica, damage: str
) -> None:
    chat.say("One.")
    damaged = DAMAGES[damage](one.home.store.read(chat.session) or b"")
    one.home.store.write(chat.session, damaged)
    assert_quarantined(chat, beside, one, damaged, damage)


@pytest.mark.spread
@pytest.mark.parametrize("damage", [name for name in DAMAGES if name not in USUAL])
def test_an_invalid_snapshot_is_quarantined(
    chat: Chat, beside: Chat, one: Replica, damage: str
) -> None:
    chat.say("One.")
    damaged = DAMAGES[damage](one.home.store.read(chat.session) or b"")
    one.home.store.write(chat.session, damaged)
    assert_quarantined(chat, beside, one, damaged, damage)


@pytest.mark.spread
@pytest.mark.parametrize("name", FOREIGN)
def test_data_of_another_program_is_refused_and_stays(chat: Chat, one: Replica, name: str) -> None:
    chat.say("One.")
    change, reason = FOREIGN[name]
    foreign = change(one.home.store.read(chat.session) or b"")
    one.home.store.write(chat.session, foreign)
    assert_refused(chat, one, foreign, reason)


@pytest.mark.spread
def test_records_that_forget_leaves_belong_to_no_caller(chat: Chat, one: Replica) -> None:
    chat.session = f"forgotten-{'0' * 64}"
    assert_failed(chat.say("One.", headers=JSON), 403, "session_forbidden", chat.session)
    assert_failed(chat.end(headers=JSON), 403, "session_forbidden", chat.session)
    assert one.home.store.snapshot(chat.session) is None


@pytest.mark.one_each
def test_a_session_of_another_framework_is_refused_and_stays(
    agents: Agents, provider: Provider
) -> None:
    home, framework = agents.home(), agents.target.name.split("-")[0]
    others = [one for one in TARGETS if not one.name.startswith(framework)]
    other = others[TARGETS.index(agents.target) % len(others)]
    variables: dict[str, int | str] = {**home.store.environment(home.store.address)}
    render = with_store(other, home.store.name)
    foreign = Server(render, home.folder, provider.origin, {**SETTINGS, **variables})
    chat = Chat(foreign, provider)
    try:
        assert [chat.say(text).turn for text in ("One.", "More.")] == [1, 2]
    finally:
        foreign.stop()
    stored = home.store.read(chat.session)
    assert stored
    replica = agents.fresh(home)
    own = on(replica.server, chat)
    assert_refused(own, replica, stored, "its messages come from another framework")


@pytest.mark.spread
def test_a_snapshot_that_is_too_large_is_not_saved_and_loses_old_turns_when_it_is_loaded(
    agents: Agents, provider: Provider
) -> None:
    large, small = agents.pair()[0], agents.fresh(agents.pair()[0].home, MAX_SNAPSHOT_BYTES=MOST)
    store = large.home.store
    chat = Chat(small.server, provider)
    chat.say("One.")
    before = store.read(chat.session)
    reply = chat.say("Two.", ["x" * MOST], headers=JSON)
    assert_failed(reply, 413, "session_too_large", chat.session)
    assert store.read(chat.session) == before
    assert chat.recalled("Three.") == echoed("One.")
    other = on(large.server, chat)
    assert [other.say(text, ["y" * 8000]).turn for text in ("Four.", "Five.")] == [3, 4]
    oversized = store.read(chat.session) or b""
    assert len(oversized) > MOST
    assert [text for role, text in chat.recalled("Six.") if role == "user"] == ["Five."]
    assert other.say("Seven.", ["z" * (MOST + 1)]).turn == 6
    assert chat.recalled("Eight.") == []
    assert other.say("Nine.").turn == 8
    assert store.quarantined(chat.session) == []
    chat.session = f"{chat.session}-state"
    chat.say("One.")
    snapshot = json.loads(store.read(chat.session) or b"")
    snapshot["data"]["state"] = {**snapshot["data"].get("state", {}), "big": "b" * MOST}
    store.write(chat.session, stored := json.dumps(snapshot).encode())
    reply = chat.say("Too much.", headers=JSON)
    assert_failed(reply, 413, "session_too_large", chat.session)
    assert "`sessions end`" in reply.json["error"]["message"]
    assert chat.calls("Too much.") == []
    assert store.read(chat.session) == stored


@pytest.mark.stores("valkey", "s3")
@pytest.mark.spread
def test_a_snapshot_that_is_too_large_to_read_is_refused_and_stays(
    chat: Chat, one: Replica
) -> None:
    chat.say("One.")
    store = one.home.store
    stored = (store.read(chat.session) or b"") + b" " * (65 << 20)
    store.write(chat.session, stored)
    for _ in range(2):
        reply = chat.say("Two.", headers=JSON)
        assert_failed(reply, 413, "session_too_large", chat.session)
        assert "`sessions end`" in reply.json["error"]["message"]
    assert chat.calls("Two.") == []
    is_unchanged = store.read(chat.session) == stored
    assert is_unchanged
    assert store.quarantined(chat.session) == []
    assert one.home.run("sessions", "end", chat.session).returncode == 0


@pytest.mark.one_each
def test_a_long_summary_is_dropped_before_the_short_turns_after_it(
    agents: Agents, provider: Provider
) -> None:
    one = agents.fresh(agents.home(), MAX_SNAPSHOT_BYTES=MOST)
    store, chat = one.home.store, Chat(one.server, provider)
    texts = ("One.", "Two.", "Three.")
    for text in texts:
        chat.say(text)
    snapshot = json.loads(store.read(chat.session) or b"")
    first = json.dumps(snapshot["data"]["messages"][:2])
    snapshot["data"]["messages"][:0] = json.loads(first.replace("One.", "s" * 5_000))
    for turn in snapshot["app_data"]["turns"]:
        turn["at"] += 2
    store.write(chat.session, json.dumps(snapshot).encode())
    reply = "x" * 7_000  # which the record of the last turn has too
    assert chat.say("Four.", [reply]).turn == 4
    last = [("user", "Four."), ("assistant", reply)]
    assert chat.recalled("Five.") == [*echoed(*texts), *last]


@pytest.mark.spread
def test_an_end_deletes_what_a_quarantine_left_of_a_session_of_its_actor(
    one: Replica, provider: Provider
) -> None:
    ada = Chat(one.server, provider, actor="ada")
    eve = Chat(one.server, provider, ada.session, actor="eve")
    ada.say("One.")
    store = one.home.store
    store.write(ada.session, DAMAGES["of turn 0"](store.read(ada.session) or b""))
    assert_failed(ada.end(), 409, "session_corrupt", ada.session)
    assert_failed(eve.end(), 403, "session_forbidden", ada.session)
    assert len(store.quarantined(ada.session)) == 1
    assert ada.end().json == {"session_id": ada.session, "ended": True}
    assert ada.session not in store.everything()


@pytest.mark.stores("s3")
@pytest.mark.spread
def test_an_end_completes_an_end_that_failed(one: Replica, provider: Provider) -> None:
    ada = Chat(one.server, provider, actor="ada")
    eve = Chat(one.server, provider, ada.session, actor="eve")
    ada.say("One.")
    store = one.home.store
    assert isinstance(store, S3Store)
    # Earlier versions deleted the snapshot first: here, the store failed after that.
    store.client.delete_object(Bucket=BUCKET, Key=store.key(ada.session))
    assert_failed(eve.end(), 403, "session_forbidden", ada.session)
    assert store.checkpoints(ada.session)
    assert ada.end().json == {"session_id": ada.session, "ended": True}
    assert ada.session not in store.everything()


@pytest.mark.stores("valkey", "s3")
@pytest.mark.spread
def test_a_session_whose_time_ran_out_begins_anew(chat: Chat, beside: Chat, one: Replica) -> None:
    chat.say("One.")
    beside.say("Two.")
    one.home.store.expire(chat.session)
    assert chat.say("Three.").turn == 1
    assert beside.recalled() == echoed("Three.")
    one.home.store.expire(chat.session)
    assert beside.recalled("Four.") == []
    assert chat.recalled("Five.") == echoed("Four.")


@pytest.mark.stores("valkey", "s3")
@pytest.mark.spread
def test_a_session_whose_time_runs_out_in_a_turn_is_not_brought_back(
    chat: Chat, beside: Chat, one: Replica, gate: threading.Event
) -> None:
    chat.say("One.")
    running = chat.start("Two.", [Hold(gate), "Late."], headers=JSON)
    chat.call("Two.")
    one.home.store.expire(chat.session)
    if one.home.store.name == "s3":  # an object that only looks old is one until it is replaced
        assert beside.say("Three.").turn == 1
    gate.set()
    assert_failed(running.reply(), 409, "session_conflict", chat.session)
    expected = ["Three."] if one.home.store.name == "s3" else []
    assert beside.recalled() == echoed(*expected)


@pytest.mark.stores("valkey", "s3")
@pytest.mark.spread
def test_a_session_that_vanished_says_that_it_begins_again(
    chat: Chat, beside: Chat, one: Replica, gate: threading.Event
) -> None:
    key = {"Idempotency-Key": "again"}
    first = {"session_id": chat.session, "turn": 1, "model": "test-model"}
    restarted = {**first, "restarted": True}
    warning = f"session {chat.session}: its turns vanished from the store"
    assert chat.say("One.").events[-1] == ("done", first)
    one.home.store.expire(chat.session)
    assert_failed(chat.say("Fails.", []), 502, "empty_reply", chat.session)
    assert chat.say("Two.", headers=key).events[-1] == ("done", restarted)
    replayed = chat.say("Two.", headers={**key, **JSON}).json
    assert replayed.pop("reply") == "You said: Two."
    assert {**replayed, "model": "test-model"} == restarted
    assert beside.say("Three.").events[-1] == ("done", {**first, "turn": 2})
    assert chat.say("Four.").events[-1] == ("done", {**first, "turn": 3})
    assert one.server.log.count(warning) == 1
    if one.home.store.name == "valkey":  # an object of S3 that only looks old is one until replaced
        running = chat.start("Five.", [Hold(gate), "Late."], headers=JSON)
        chat.call("Five.")
        one.home.store.expire(chat.session)
        gate.set()
        assert_failed(running.reply(), 409, "session_conflict", chat.session)
        assert chat.say("Five again.").events[-1] == ("done", restarted)
    assert chat.end().json["ended"]
    assert chat.say("Six.").events[-1] == ("done", first)


@pytest.mark.spread
def test_a_turn_stores_a_snapshot_of_the_contract(chat: Chat, one: Replica) -> None:
    chat.say("One.", headers={"Idempotency-Key": "key-1"})
    snapshot = one.home.store.snapshot(chat.session)
    assert set(snapshot) == {"scope", "schema_version", "created_at", "data", "app_data"}
    assert (snapshot["scope"], snapshot["schema_version"]) == ("agent", "1.0")
    assert snapshot["created_at"].endswith("Z") or "+00:00" in snapshot["created_at"]
    (turn,) = snapshot["app_data"].pop("turns")
    assert (turn.pop("at"), turn.pop("key"), turn) in [
        (0, "key-1", {}),
        (0, "key-1", {"other": {}}),
    ]
    last = {"actor": None, "turn": 1, "key": "key-1", "reply": "You said: One."}
    assert snapshot["app_data"] == last
    assert len(snapshot["data"]["messages"]) == 2
    assert snapshot["data"].get("system_prompt") is None
