"""Files of a session are stored once, beside its snapshot, and live as long as turns use them."""

import json
import random
import signal
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.conformance.chat import Chat, assert_failed
from tests.conformance.client import JSON, Reply
from tests.conformance.provider import Provider
from tests.conformance.steps import Hold
from tests.stores.agents import HASTY, Agents, Replica, on
from tests.stores.conftest import FULL
from tests.stores.servers import wait_for
from tests.stores.stores import CustomStore, S3Store, Store
from tests.stores.test_faults import DOWN
from tests.support.files import Sample, sent

LOST = "[A file that the session store has lost]"


def pdf(letter: str) -> Sample:
    """A PDF of 3 KB, of its own content."""
    return (f"{letter}.pdf", "application/pdf", b"%PDF-1.4\n" + letter.encode() * 3000)


A, B = pdf("a"), pdf("b")


def say(chat: Chat, text: str, *files: Sample, **fields: object) -> Reply:
    body = {"prompt": text + chat.tag, "files": [sent(*file) for file in files], **fields}
    return chat.post(body, JSON)


def received(chat: Chat, text: str) -> list[bytes]:
    """The files of the last request for a prompt."""
    return [entry[2] for entry in chat.calls(text)[-1].history if entry[0] == "file"]


def contents(store: Store, session: str) -> list[bytes]:
    return sorted(store.files(session).values())


def has(store: Store, session: str, *samples: Sample) -> Callable[[], bool]:
    """Whether exactly these are stored; the deletion of old files follows the reply."""
    expected = sorted(sample[2] for sample in samples)
    return lambda: contents(store, session) == expected


@pytest.mark.spread
def test_a_file_is_stored_once_and_the_snapshot_refers_to_it(chat: Chat, one: Replica) -> None:
    store = one.home.store
    assert say(chat, "One.", A).turn == 1
    assert say(chat, "Two.", A, B).turn == 2
    assert contents(store, chat.session) == [A[2], B[2]]
    snapshot = store.read(chat.session) or b""
    assert b64encode(A[2])[:100] not in snapshot
    assert len(snapshot) < 4000
    for name in store.files(chat.session):
        assert name.encode() in snapshot


@pytest.mark.spread
def test_another_replica_has_the_files(chat: Chat, beside: Chat, two: Replica) -> None:
    assert say(chat, "One.", A).turn == 1
    assert say(beside, "Two.").turn == 2
    assert received(beside, "Two.") == [A[2]]
    assert say(chat, "Three.", B).turn == 3
    assert say(beside, "Four.").turn == 4
    assert received(beside, "Four.") == [A[2], B[2]]
    assert "lost" not in two.server.log


@pytest.mark.once
def test_a_file_that_no_turn_uses_is_deleted(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    chat = Chat(agents.fresh(home).server, provider)
    store = home.store
    assert say(chat, "One.", A).turn == 1
    assert say(chat, "Two.", B).turn == 2
    make_old(store, chat.session)
    assert say(chat, "Other.", replace_turn=2).turn == 2
    wait_for("the deletion of a file", has(store, chat.session, A))
    assert chat.end().status == 200
    assert store.files(chat.session) == {}


def make_old(store: Store, session: str) -> None:
    """S3 keeps uploads of the last hour, which a running save may need."""
    if isinstance(store, S3Store):
        for key in store.keys(store.key(session, "files/")):
            store.age(key, 1 / 12)


@pytest.mark.once
def test_a_checkpoint_keeps_its_files(chat: Chat, one: Replica) -> None:
    store = one.home.store
    assert say(chat, "One.", A).turn == 1
    make_old(store, chat.session)
    assert say(chat, "Other.", B, replace_turn=1).turn == 1
    assert contents(store, chat.session) == [A[2], B[2]]
    first, _ = store.checkpoints(chat.session)
    done = one.home.run("sessions", "restore", chat.session, first)
    assert done.returncode == 0, done
    assert chat.say("Two.", headers=JSON).turn == 2
    assert received(chat, "Two.") == [A[2]]


@pytest.mark.spread
def test_a_fork_has_files_of_its_own(chat: Chat, one: Replica) -> None:
    assert say(chat, "One.", A).turn == 1
    copy = chat.elsewhere(session=f"{chat.session}-copy")
    assert chat.post({"fork": copy.session, "at_turn": 1}).status == 200
    assert chat.end().status == 200
    assert copy.say("Two.", headers=JSON).turn == 2
    assert received(copy, "Two.") == [A[2]]
    assert contents(one.home.store, copy.session) == [A[2]]


@pytest.mark.once
@pytest.mark.parametrize("content", [None, b"of another file"], ids=["missing", "replaced"])
def test_the_model_is_told_that_a_file_is_lost(
    agents: Agents, chat: Chat, one: Replica, content: bytes | None
) -> None:
    store = one.home.store
    assert say(chat, "One.", A).turn == 1
    assert say(chat, "Two.", B).turn == 2
    (name,) = [name for name, data in store.files(chat.session).items() if data == A[2]]
    store.write_file(chat.session, name, content)
    fresh = agents.fresh(one.home)
    later = on(fresh.server, chat)
    assert say(later, "Three.").turn == 3
    assert received(later, "Three.") == [B[2]]
    assert LOST in repr(later.calls("Three.")[-1].history)
    assert "the store has lost 1 of its files" in fresh.server.log
    assert say(later, "Four.").turn == 4


@pytest.mark.once
def test_a_response_that_the_network_changed_is_read_again(
    agents: Agents, chat: Chat, one: Replica
) -> None:
    content = b"%PDF-1.4\n" + bytes(random.Random(1).choices(b"abcdefgh", k=3000))
    assert say(chat, "One.", ("a.pdf", "application/pdf", content)).turn == 1
    fresh = agents.fresh(one.home)
    is_encoded = one.home.store.name.startswith("custom")
    part = b64encode(content)[600:700] if is_encoded else content[1000:1100]
    fresh.proxy.spoil(part, "changed", 1)
    later = on(fresh.server, chat)
    assert say(later, "Two.").turn == 2
    assert fresh.proxy.spoilt == 1
    assert received(later, "Two.") == [content]
    assert "lost" not in fresh.server.log


@pytest.mark.once
def test_a_file_is_not_sent_again_when_the_cache_has_dropped_its_session(
    agents: Agents, provider: Provider
) -> None:
    home = agents.home()
    chat = Chat(agents.fresh(home, SESSION_CAPACITY=1).server, provider)
    assert say(chat, "One.", A).turn == 1
    names = home.store.files(chat.session).keys()
    gate = threading.Event()
    exchange = chat.start("Two.", [Hold(gate), "Two."], headers=JSON)
    chat.call("Two.")
    assert Chat(chat.server, provider).say("Other.").turn == 1
    gate.set()
    assert exchange.reply().turn == 2
    assert home.store.files(chat.session).keys() == names


@pytest.mark.spread
@pytest.mark.stores("custom-rest", "custom-lambda")
def test_a_file_stays_if_another_process_continues_a_save_whose_reply_is_lost(
    agents: Agents, provider: Provider
) -> None:
    home = agents.home(attempts=2, timeout_ms=HASTY * 1000)
    one, two = agents.fresh(home), agents.fresh(home)
    chat = Chat(one.server, provider)
    assert chat.say("One.", headers=JSON).turn == 1
    one.proxy.at_save = "hold reply"
    exchange = chat.send({"prompt": "Two." + chat.tag, "files": [sent(*A)]}, JSON)
    one.proxy.wait_held()
    assert say(on(two.server, chat), "Three.").turn == 3
    assert exchange.reply().status in {409, 503}
    one.proxy.reset()
    later = on(agents.fresh(home).server, chat)
    assert say(later, "Four.").turn == 4
    assert received(later, "Four.") == [A[2]]


@pytest.mark.spread
def test_the_digest_of_another_session_opens_nothing(chat: Chat, one: Replica) -> None:
    assert say(chat, "One.", A).turn == 1
    (name,) = one.home.store.files(chat.session)
    other = chat.elsewhere(session=f"{chat.session}-other")
    fields = json.dumps({"data": f"sha256:{name}", "bytes": f"=sha256-url:{name}"})
    for text in (f"sha256:{name}", fields):
        assert say(other, text).status == 200
        assert received(other, text) == []
    assert one.home.store.files(other.session) == {}
    entries = repr(other.recalled())
    assert entries.count(f"sha256:{name}") == 4
    assert entries.count(f"=sha256-url:{name}") == 2


@pytest.mark.one_each
def test_sessions_copy_carries_files(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    chat = Chat(agents.fresh(home, CHECKPOINTS=3).server, provider)
    assert say(chat, "One.", A).turn == 1
    make_old(home.store, chat.session)
    assert say(chat, "Other.", B, replace_turn=1).turn == 1
    copied = home.run("sessions", "copy", chat.session, "--to", "./kept", CHECKPOINTS="3")
    assert copied.stdout.strip() == "1 session copied, 0 unchanged.", copied
    assert chat.end().status == 200
    again = home.run("sessions", "copy", chat.session, "--from", "./kept", CHECKPOINTS="3")
    assert again.stdout.strip() == "1 session copied, 0 unchanged.", again
    assert contents(home.store, chat.session) == [A[2], B[2]]
    assert chat.say("Two.", headers=JSON).turn == 2
    assert received(chat, "Two.") == [B[2]]
    (first, *_) = home.store.checkpoints(chat.session)
    assert home.run("sessions", "restore", chat.session, first).returncode == 0
    assert chat.say("Three.", headers=JSON).turn == 2
    assert received(chat, "Three.") == [A[2]]


@pytest.mark.spread
@pytest.mark.stores("s3")
def test_the_sweep_deletes_files_of_a_turn_that_was_not_saved(
    agents: Agents, provider: Provider
) -> None:
    replica = agents.fresh(agents.home())
    chat = Chat(replica.server, provider)
    store = replica.home.store
    assert isinstance(store, S3Store)
    replica.proxy.at_save = "hold request"
    exchange = chat.send({"prompt": "One.", "files": [sent(*A)]})
    replica.proxy.wait_held()
    replica.server.signal(signal.SIGKILL)
    replica.server.exit_code()
    exchange.leave()
    agents.discard(replica)
    assert contents(store, chat.session) == [A[2]]
    sweep = partial(replica.home.run, "sessions", "sweep")
    assert sweep().returncode == 0
    assert contents(store, chat.session) == [A[2]], "a running save may need it"
    make_old(store, chat.session)
    assert sweep().returncode == 0
    assert store.files(chat.session) == {}


@pytest.mark.spread
def test_an_end_keeps_the_files_of_a_first_turn_that_is_being_saved(
    chat: Chat, pair: tuple[Replica, Replica], provider: Provider
) -> None:
    one, two = pair
    one.proxy.at_save = "hold request"
    exchange = chat.send({"prompt": "One." + chat.tag, "files": [sent(*A)]}, JSON)
    one.proxy.wait_held()
    assert Chat(two.server, provider, chat.session, actor="eve").end().status == 200
    one.proxy.reset()
    assert exchange.reply().turn == 1
    assert contents(one.home.store, chat.session) == [A[2]]


@pytest.mark.spread
@pytest.mark.stores("s3")
def test_an_end_deletes_old_files_of_a_turn_that_was_not_saved(chat: Chat, one: Replica) -> None:
    store = one.home.store
    store.write_file(chat.session, "left", A[2])
    assert chat.end().status == 200
    assert contents(store, chat.session) == [A[2]], "a running save may need it"
    make_old(store, chat.session)
    assert chat.end().status == 200
    assert store.files(chat.session) == {}


@pytest.mark.spread
@pytest.mark.stores("s3")
@pytest.mark.parametrize("reply", [b"<ListBucketResult", b"<DeleteResult"])
def test_an_end_that_failed_can_be_repeated_at_any_replica(
    agents: Agents, provider: Provider, reply: bytes
) -> None:
    home = agents.home()
    one = agents.fresh(home)
    chat = Chat(one.server, provider, actor="ada")
    assert say(chat, "One.", A).turn == 1
    one.proxy.spoil(reply, "cut", 9)
    assert_failed(chat.end(), *DOWN, chat.session)
    two = agents.fresh(home).server
    eve = Chat(two, provider, chat.session, actor="eve")
    assert_failed(eve.end(), 403, "session_forbidden", chat.session)
    assert on(two, chat).end().json == {"session_id": chat.session, "ended": True}
    assert chat.session not in home.store.everything()


@pytest.mark.spread
@pytest.mark.stores("custom-rest", "custom-lambda")
def test_an_end_is_sent_again_if_an_endpoint_has_done_a_part_of_it(
    one: Replica, two: Replica, provider: Provider
) -> None:
    chat = Chat(one.server, provider, actor="ada")
    assert say(chat, "One.", A).turn == 1
    store = one.home.store
    assert isinstance(store, CustomStore)
    files = store.file_rows(chat.session)
    one.proxy.spoil(b'"ok"', "cut", 9)
    assert_failed(chat.end(), *DOWN, chat.session)
    one.proxy.reset()
    store.insert(files)
    eve = Chat(one.server, provider, chat.session, actor="eve")
    assert_failed(eve.end(), 403, "session_forbidden", chat.session)
    assert contents(store, chat.session) == [A[2]]
    assert chat.end().json == {"session_id": chat.session, "ended": True}
    assert chat.session not in store.everything()
    store.insert(files)  # as of another agent
    assert chat.end().status == 200
    assert contents(store, chat.session) == [A[2]]
    # A session that was saved since, and that another replica ended, is not ended again.
    assert chat.say("Two.").turn == 1
    one.proxy.spoil(b'"ok"', "cut", 9)
    assert_failed(chat.end(), *DOWN, chat.session)
    one.proxy.reset()
    assert chat.say("Three.").turn == 1
    assert on(two.server, chat).end().status == 200
    store.insert(files)
    assert chat.end().status == 200
    assert contents(store, chat.session) == [A[2]]


@pytest.mark.once
def test_turns_at_two_replicas_lose_no_file_and_leave_none(
    agents: Agents, provider: Provider
) -> None:
    home = agents.home()
    replicas = [agents.fresh(home) for _ in range(2)]
    chat = Chat(replicas[0].server, provider)
    assert say(chat, "Zero.", pdf("z")).turn == 1

    def talk(number: int) -> list[int]:
        own = on(replicas[number].server, chat)
        letters = "abcdefgh"[number::2]
        return [say(own, f"{it}.", pdf(it), replace_turn=1).status for it in letters]

    with ThreadPoolExecutor() as pool:
        statuses = [status for results in pool.map(talk, range(2)) for status in results]
    assert {*statuses} <= {200, 409}
    make_old(home.store, chat.session)
    assert say(chat, "Last.", A, replace_turn=1).turn == 1
    wait_for("the deletion of old files", has(home.store, chat.session, A))
    assert say(on(replicas[1].server, chat), "And?").turn == 2
    assert "lost" not in replicas[0].server.log + replicas[1].server.log


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize("kills", [4, pytest.param(25, marks=FULL)])
def test_kills_leave_no_reference_without_a_file(
    agents: Agents, provider: Provider, kills: int
) -> None:
    home = agents.home()
    store = home.store
    sessions = []
    for _ in range(kills):
        replica = agents.fresh(home)
        chat = Chat(replica.server, provider)
        sessions.append(chat.session)
        assert say(chat, "One.", A).turn == 1
        exchange = chat.send({"prompt": "Two.", "files": [sent(*B)], "replace_turn": 1})
        time.sleep(random.uniform(0, 0.1))
        replica.server.signal(signal.SIGKILL)
        replica.server.exit_code()
        exchange.leave()
        agents.discard(replica)
        store.settle()
    final = agents.fresh(home)
    for session in sessions:
        chat = Chat(final.server, provider, session)
        assert say(chat, "Three.").turn == 2
        (content,) = received(chat, "Three.")
        assert content in {A[2], B[2]}
        make_old(store, session)
        assert say(chat, "Four.", pdf("c"), replace_turn=1).turn == 1
        if not store.name.startswith("custom"):  # its contract lists no files
            wait_for("the deletion of old files", has(store, session, pdf("c")))
    assert "lost" not in final.server.log
