"""The command line of an owner: check, and sessions list, show, restore and end."""

import json
import re
import threading
import uuid
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import valkey

from tests.conformance.chat import Chat, assert_failed, echoed
from tests.conformance.client import JSON, KEY
from tests.conformance.provider import Provider
from tests.conformance.steps import Hold
from tests.stores.agents import CHECKPOINTS, Agents, Home, Replica, assert_clean
from tests.stores.proxy import Proxy
from tests.stores.servers import UNWRITABLE, valkey_server, wait_for
from tests.stores.stores import SENTINEL, s3_client

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@pytest.mark.once
def test_a_session_is_taken_back_to_an_earlier_turn(chat: Chat, one: Replica) -> None:
    home = one.home
    texts = ["One.", "Two.", "Three.", "Four.", "Five."]
    for number, text in enumerate(texts):
        assert chat.say(text, headers={KEY: f"key-{number}"}).turn
    if not home.store.name.startswith("custom"):  # there the endpoint bounds them
        checkpoints = partial(home.store.checkpoints, chat.session)
        # Those that are too many may be deleted after the turn.
        wait_for("three checkpoints", lambda: len(checkpoints()) == CHECKPOINTS)
    kept = home.store.checkpoints(chat.session)
    assert all(UUID7.fullmatch(name) for name in kept)

    shown = home.run("sessions", "show", chat.session)
    assert shown.returncode == 0, shown
    assert [name for name in UUID7.findall(shown.stdout) if name in kept] == kept

    third = kept[-3]
    restored = home.run("sessions", "restore", chat.session, third)
    assert restored.returncode == 0, restored
    assert home.store.turns(chat.session) == 3
    replayed = chat.say(texts[2], headers={KEY: "key-2", **JSON})
    assert (replayed.json["turn"], replayed.json["reply"]) == (3, f"You said: {texts[2]}")
    assert chat.recalled() == echoed(*texts[:3])

    refused = home.run("sessions", "restore", chat.session, "0" * 8 + third[8:])
    assert refused.returncode != 0
    assert refused.stdout.count("\n") + refused.stderr.count("\n") <= 3, refused
    assert home.store.turns(chat.session) == 4

    ended = home.run("sessions", "end", chat.session)
    assert ended.returncode == 0, ended
    assert home.store.snapshot(chat.session) is None
    assert home.store.checkpoints(chat.session) == []
    assert chat.say("Anew.").turn == 1
    for result in (shown, restored, refused, ended):
        assert_clean(result.stdout + result.stderr)


@pytest.mark.one_each
def test_all_sessions_are_listed_where_the_store_can(
    chat: Chat, beside: Chat, one: Replica, agents: Agents
) -> None:
    other = Chat(one.server, chat.provider)
    for some in (chat, beside, other):
        some.say("Hello.")
    result = one.home.run("sessions", "list")
    ended = one.home.run("sessions", "end", "--actor", "someone-else")
    if one.home.store.name.startswith("custom"):
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr.startswith("Error: ")
        assert "no operation" in result.stderr
        assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", result.stderr)
    else:
        assert (ended.returncode, ended.stdout.startswith("0 sessions ")) == (0, True), ended
        foreign = type(one.home.store)(agents.backing, f"other-{one.home.agent_id}")
        foreign.write("session-of-another-agent", b"{}")
        result = one.home.run("sessions", "list", "--json")
        assert result.returncode == 0, result
        listed = json.loads(result.stdout)["sessions"]
        assert {chat.session, other.session} <= set(listed)
        assert listed == sorted(set(listed))
        assert "session-of-another-agent" not in listed
    assert_clean(result.stdout + result.stderr)


@pytest.mark.one_each
def test_session_ids_of_agentcore_have_their_own_places(
    one: Replica, agents: Agents, provider: Provider
) -> None:
    store = one.home.store
    id = f"{uuid.uuid4()}@example.com/a b:c#?(x)*'~."
    ids = [id, id.replace("/", "%2F"), quote(id, safe=""), f"_{uuid.uuid4()}"]
    for number, session in enumerate(ids):
        assert Chat(one.server, provider, session).say(f"Hello {number}.").turn == 1
    beside = agents.fresh(one.home).server
    for number, session in enumerate(ids):
        chat = Chat(beside, provider, session)
        first = chat.recalled()[0][1]
        assert str(first).startswith(f"Hello {number}.")
        assert store.turns(session) == 2
    if not store.name.startswith("custom"):
        result = one.home.run("sessions", "list", "--json")
        assert {*ids} <= {*json.loads(result.stdout)["sessions"]}, result
    assert one.home.run("sessions", "end", ids[0]).returncode == 0
    assert [store.turns(session) for session in ids] == [0, 2, 2, 2]


@pytest.mark.once
@pytest.mark.stores("valkey", "s3")
def test_a_session_of_a_long_actor_is_shown_with_its_time_and_size(
    one: Replica, provider: Provider
) -> None:
    ada = Chat(one.server, provider, actor="a" * 255)
    ada.say("One.")
    size = len(one.home.store.read(ada.session) or b"")
    shown = one.home.run("sessions", "show", ada.session)
    line = f"turn 1, actor {ada.actor}, {made_at(one.home, ada.session)}, {size} bytes"
    assert shown.stdout.splitlines()[0] == f"session {ada.session}: {line}", shown


@pytest.mark.full
@pytest.mark.one_each
def test_a_session_that_was_quarantined_is_shown(chat: Chat, one: Replica) -> None:
    store = one.home.store
    chat.say("One.")
    store.write(chat.session, b'{"schema_version":"1.0"}')
    assert_failed(chat.say("Two.", headers=JSON), 409, "session_corrupt", chat.session)
    shown = one.home.run("sessions", "show", chat.session, "--json")
    assert shown.returncode == 0, shown
    (name,) = store.quarantine_names(chat.session)
    (quarantined,) = json.loads(shown.stdout)["quarantined"]
    assert name in quarantined


@pytest.mark.one_each
def test_a_session_that_no_turn_can_read_is_shown(chat: Chat, one: Replica) -> None:
    is_custom = one.home.store.name.startswith("custom")  # there an empty body is no answer
    chat.say("One.")
    for stored in (b'{"data":"%s"}' % (b"x" * 9_000_000), b"{}" if is_custom else b""):
        one.home.store.write(chat.session, stored)
        shown = one.home.run("sessions", "show", chat.session)
        assert shown.returncode == 0, shown
        assert shown.stdout.startswith(f"session {chat.session}: unreadable, "), shown
        assert "so the next turn quarantines it" in shown.stdout


@pytest.mark.one_each
def test_a_session_that_turns_refuse_is_shown_with_the_reason(chat: Chat, one: Replica) -> None:
    chat.say("One.")
    snapshot = json.loads(one.home.store.read(chat.session) or b"")
    stored = json.dumps({**snapshot, "schema_version": "2.0"}).encode()
    one.home.store.write(chat.session, stored)
    shown = one.home.run("sessions", "show", chat.session)
    reason = "its schema version is not 1.0, so turns are refused"
    assert shown.stdout.splitlines()[0].endswith(f" bytes: {reason}"), shown
    shown = one.home.run("sessions", "show", chat.session, "--json")
    assert json.loads(shown.stdout)["foreign_format"] == "its schema version is not 1.0"


@pytest.mark.one_each
@pytest.mark.stores("valkey", "s3")
def test_an_object_that_is_too_large_for_a_session_is_not_read(chat: Chat, one: Replica) -> None:
    large = b'{"schema_version":"2.0","data":"%s"}' % (b"x" * (65 << 20))
    one.home.store.write(chat.session, large)
    shown = one.home.run("sessions", "show", chat.session)
    line = f"session {chat.session}: unreadable: it is too large to read, so turns are refused\n"
    assert shown.stdout == line, shown
    assert one.home.run("sessions", "end", chat.session).returncode == 0


@pytest.mark.one_each
def test_the_start_logs_the_address_of_the_store(one: Replica) -> None:
    (line,) = [line for line in one.server.log.splitlines() if line.startswith("Sessions: ")]
    assert " contacts " in line
    assert "env:" not in line
    assert_clean(line)


@pytest.mark.one_each
def test_check_reports_nothing_in_a_fresh_render(agents: Agents) -> None:
    home = agents.home()
    result = home.run("check")
    assert result.returncode == 0, result
    assert " 0 errors" in f" {result.stdout.splitlines()[-1]}"
    home.collection.write_text(home.collection.read_text().replace('"active"', '"disabled"'))
    result = home.run("check")
    assert result.returncode == 1
    assert re.search(r"agents/\S+:\d+ AML-E\w+ ", result.stdout), result.stdout


@pytest.mark.one_each
def test_check_tries_the_operations_of_a_turn_and_leaves_nothing(agents: Agents) -> None:
    home = agents.home()
    proxy = home.store.proxy()
    result = home.run("check", "--connect", **home.store.environment(proxy.address))
    assert result.returncode == 0, result
    assert proxy.saves == 1
    assert home.agent_id not in home.store.everything()
    proxy.close()


@pytest.mark.stores("valkey")
@pytest.mark.spread
def test_check_reports_missing_rights_and_causes_of_session_loss(
    agents: Agents, tmp_path: Path
) -> None:
    home, options = agents.home(), ["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]
    with valkey_server(tmp_path, options) as (host, port):
        client: Any = valkey.Valkey(host, port)
        rights = ["+@read", "+@connection", "+eval", "+info"]
        user = {"enabled": True, "passwords": [f"+{SENTINEL}"], "keys": ["*"], "commands": rights}
        client.acl_setuser("reader", **user)
        found = {}
        for name in ("", f"reader:{SENTINEL}@"):
            url = f"valkey://{name}{host}:{port}"
            result = home.run("check", "--connect", SECRETS_VALKEY_SESSIONS=url)
            assert_clean(result.stdout + result.stderr)
            lines = result.stdout.splitlines()[:-1]
            found[name[:6]] = [line.partition(":1 ")[2][:36] for line in lines]
            assert client.keys() == []
        proxy = Proxy((host, port), lambda request: b"app_data" in request)
        proxy.at_save, url = "cut reply", f"valkey://{proxy.address[0]}:{proxy.address[1]}"
        result = home.run("check", "--connect", SECRETS_VALKEY_SESSIONS=url)
        assert proxy.saves
        assert client.keys() == [], "nothing is left behind where the reply was lost"
        proxy.close()
    evicted = "AML-W161 maxmemory-policy is volatil"
    assert found == {
        "": [evicted, "AML-W161 The server saves nothing to"],
        "reader": [evicted, "AML-E160 No session can be saved: va"],
    }


@pytest.mark.stores("s3")
@pytest.mark.full
def test_check_finds_a_bucket_that_may_only_be_read_and_sets_no_rule(agents: Agents) -> None:
    home, client = agents.home(), s3_client(agents.backing.s3)
    results = []
    for bucket in (home.agent_id, f"{UNWRITABLE}{home.agent_id}"):
        client.create_bucket(Bucket=bucket)
        results.append(home.run("check", "--connect", SECRETS_S3_SESSIONS=bucket))
        with pytest.raises(client.exceptions.ClientError, match="NoSuchLifecycle"):
            client.get_bucket_lifecycle_configuration(Bucket=bucket)
    assert [result.returncode for result in results] == [0, 1], results
    assert "AML-E160 No session can be saved: " in results[1].stdout
    assert "AccessDenied" in results[1].stdout


@pytest.mark.stores("valkey")
@pytest.mark.spread
def test_a_store_that_is_not_there_is_one_line(agents: Agents) -> None:
    home = agents.home()
    url = f"valkey://:{SENTINEL}@127.0.0.1:9"
    for words in (["list"], ["end", "a"]):
        result = home.run("sessions", *words, SECRETS_VALKEY_SESSIONS=url)
        assert result.returncode == 1, result
        kinds = ("ConnectionRefusedError (Connection refused)", "Error (ECONNREFUSED)")
        lines = [f"Error: valkey at 127.0.0.1:9: {kind}\n" for kind in kinds]
        assert (result.stdout, result.stderr in lines) == ("", True), result
        assert_clean(result.stdout + result.stderr)


@pytest.mark.stores("valkey")
@pytest.mark.spread
def test_a_replica_notices_that_a_session_was_restored_or_ended(
    chat: Chat, beside: Chat, one: Replica
) -> None:
    home = one.home
    chat.say("One.")
    beside.say("Two.")
    first = home.store.checkpoints(chat.session)[0]
    assert home.run("sessions", "restore", chat.session, first).returncode == 0
    assert beside.recalled("Three.") == echoed("One.")
    assert home.run("sessions", "end", chat.session).returncode == 0
    assert beside.recalled("Four.") == []
    assert chat.recalled("Five.") == echoed("Four.")


def has_checkpoints(home: Home, session: str) -> bool:
    """Whether as many are left as there shall be."""
    return len(home.store.checkpoints(session)) == CHECKPOINTS


def made_at(home: Home, session: str) -> str:
    """When the last turn was made, as `sessions show` tells it."""
    return str(home.store.snapshot(session)["created_at"]).replace("+00:00", "Z")


def shown_turns(home: Home, session: str) -> list[tuple[int, str]]:
    """The turn of each checkpoint that `sessions show` lists, and when it was made."""
    shown = home.run("sessions", "show", session, "--json")
    assert shown.returncode == 0, shown
    checkpoints = json.loads(shown.stdout)["checkpoints"]
    assert [one["id"] for one in checkpoints] == home.store.checkpoints(session)
    return [(one["turn"], one["created_at"]) for one in checkpoints]


@pytest.mark.full
@pytest.mark.stores("valkey", "s3")
@pytest.mark.spread
def test_a_replica_whose_clock_is_behind_leaves_checkpoints(chat: Chat, one: Replica) -> None:
    home = one.home
    for text in ("One.", "Two.", "Three."):
        chat.say(text)
    home.store.bring_forward(chat.session)  # as another replica made them, whose clock is ahead
    for turn, text in ((4, "Four."), (5, "Five.")):
        assert chat.say(text).turn == turn
        trimmed = partial(has_checkpoints, home, chat.session)
        wait_for("the deletion of old checkpoints", trimmed)
        assert [one for one, _ in shown_turns(home, chat.session)] == [turn - 2, turn - 1, turn]
    ids = home.store.checkpoints(chat.session)
    assert all(UUID7.fullmatch(id) for id in ids)


@pytest.mark.full
@pytest.mark.one_each
@pytest.mark.parametrize("before", [0, 1])
def test_the_loser_of_a_race_leaves_no_checkpoint(
    chat: Chat, beside: Chat, one: Replica, gate: threading.Event, before: int
) -> None:
    home, expected = one.home, []
    for number in range(before):
        assert chat.say(f"Before {number}.").turn == number + 1
        expected.append((number + 1, made_at(home, chat.session)))
    running = chat.start("Loser.", [Hold(gate), "Late."], headers=JSON)
    chat.call("Loser.")
    assert beside.say("Winner.").turn == before + 1
    expected.append((before + 1, made_at(home, chat.session)))
    gate.set()
    assert_failed(running.reply(), 409, "session_conflict", chat.session)
    assert shown_turns(home, chat.session) == expected
    assert chat.say("After.").turn == before + 2
    expected.append((before + 2, made_at(home, chat.session)))
    assert shown_turns(home, chat.session) == expected


@pytest.mark.one_each
@pytest.mark.parametrize("before", [0, 1])
def test_a_save_whose_reply_was_lost_has_its_checkpoint(
    chat: Chat, one: Replica, before: int
) -> None:
    home = one.home
    for number in range(before):
        assert chat.say(f"Before {number}.").turn == number + 1
    one.proxy.at_save = "cut reply"
    first = chat.say("Lost.", headers={**JSON, KEY: "key-lost"})
    assert one.proxy.held.is_set()
    if first.status != 200:  # its client did not try again
        assert_failed(first, 503, "store_unavailable", chat.session)
    assert home.store.turns(chat.session) == before + 1
    again = chat.say("Lost.", headers={**JSON, KEY: "key-lost"})
    assert again.json["turn"] == before + 1
    assert [turn for turn, _ in shown_turns(home, chat.session)] == list(range(1, before + 2))
    assert chat.say("After.").turn == before + 2
    assert [turn for turn, _ in shown_turns(home, chat.session)] == list(range(1, before + 3))
