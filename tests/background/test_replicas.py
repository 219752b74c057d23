"""Background turns with the sessions in Valkey: any replica serves readers, and one may die."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.background.follower import Background
from tests.conformance.chat import assert_failed, echoed
from tests.conformance.client import KEY
from tests.conformance.conftest import backing  # noqa: F401 (a fixture)
from tests.conformance.provider import Provider
from tests.conformance.steps import HANG, Flood, Hold
from tests.stores.agents import Agents, Replica
from tests.stores.servers import valkey_cluster, wait_for
from tests.stores.stores import ValkeyStore
from tests.ui.chat_page import RESUME, Page, unique

LOST_SECONDS = 15  # until readers learn that the replica has died


@pytest.fixture
def one(agents: Agents) -> Replica:
    return agents.pair()[0]


@pytest.fixture
def two(agents: Agents, one: Replica) -> Replica:  # noqa: ARG001
    return agents.pair()[1]


@pytest.fixture
def chat(one: Replica, provider: Provider) -> Background:
    return Background(one.server, provider)


@contextmanager
def frozen(replica: Replica) -> Iterator[None]:
    """Stop the server of the sessions; it continues at the end."""
    store = replica.home.store
    assert isinstance(store, ValkeyStore)
    pid = store.client.info("server")["process_id"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_another_replica_serves_readers_and_continues(
    chat: Background, two: Replica, gate: threading.Event
) -> None:
    turn_id = chat.begin("One.", ["a", Hold(gate), "b"])
    here, there = chat.follow(), chat.follow(server=two.server)
    assert [here.next(), here.exchange] != [there.next(), there.exchange]
    gate.set()
    rest = here.rest()
    assert [event.name for event in rest] == ["message", "done"]
    assert there.rest() == rest
    whole = chat.follow().rest()
    assert chat.follow(server=two.server).rest() == whole
    assert chat.follow(last_id=f"{turn_id}.1", server=two.server).rest() == rest
    assert two.server.get(f"/invocations/{chat.session}/events", chat.headers).status == 200


def test_a_long_reply_arrives_whole(chat: Background, two: Replica, gate: threading.Event) -> None:
    chat.begin("One.", ["a", Hold(gate), Flood(3000, 100)])
    there = chat.follow(server=two.server)
    assert there.next()
    gate.set()
    numbers = [int(event.id.partition(".")[2]) for event in there.rest()]
    assert numbers == [*range(2, 3003)]
    assert chat.follow(server=two.server).rest() == chat.follow().rest()


def test_a_reader_at_another_replica_gets_events_that_come_faster_than_it_reads(
    agents: Agents, provider: Provider
) -> None:
    """At once: dropped before a write. Every 60 ms: a write in between, and no read."""
    home = agents.home()
    here, there = (agents.fresh(home, MAX_EVENT_BYTES=1024) for _ in range(2))
    chat = Background(here.server, provider)
    for pause in (0, 0.06):
        gates = [threading.Event() for _ in range(12)]
        events = (part for gate in gates for part in (Hold(gate), "x" * 2000))
        chat.begin(f"Every {pause} seconds.", ["a", *events])
        reader = chat.follow(server=there.server)
        assert reader.next()
        for gate in gates:
            time.sleep(pause)
            gate.set()
        rest = reader.rest()
        assert (len(rest), rest[-1].name) == (13, "done")


def test_the_newest_turn_is_followed_wherever_it_runs(chat: Background, two: Replica) -> None:
    there = chat.on(two.server)
    chat.begin("One.", ["first"])
    assert chat.follow().rest()[0].data == "first"
    there.begin("Two.", ["second"])
    assert there.follow().rest()[0].data == "second"
    assert chat.follow().rest()[0].data == "second"


def test_another_replica_stops_the_turn(
    chat: Background, two: Replica, gate: threading.Event
) -> None:
    chat.begin("One.", ["a", Hold(gate), "b"])
    reader = chat.follow(server=two.server)
    assert reader.next()
    assert chat.stop(two.server) is True
    assert reader.rest()[-1].error == "turn_stopped"
    chat.gone("One.")
    assert chat.stop(two.server) is False
    assert chat.say("Two.").turn == 1


def test_a_stop_at_another_replica_cancels_all_turns_of_the_actor(
    chat: Background, two: Replica, gate: threading.Event
) -> None:
    chat.begin("One.", ["a", Hold(gate), "b"])
    first = chat.follow()
    assert first.next()
    chat.begin("Two.", [Hold(gate)])  # it waits for the first turn
    second = chat.follow(server=two.server)
    assert chat.stop(two.server) is True
    assert [it.rest()[-1].error for it in (first, second)] == ["turn_stopped"] * 2
    wait_for("the end of both", lambda: not chat.stop(two.server))
    assert chat.say("Three.").turn == 1


@pytest.mark.parametrize("stops_at_older", [False, True])
def test_a_stop_cancels_an_older_turn_at_another_replica_too(
    chat: Background, one: Replica, two: Replica, gate: threading.Event, stops_at_older: bool
) -> None:
    there = chat.on(two.server)
    chat.begin("One.", ["a", Hold(gate), "b"])
    older = chat.follow()
    assert older.next()
    if stops_at_older:
        there.begin("Two.", ["c", Hold(gate), "d"])
    else:
        there.begin("Two.")
    newer = there.follow()
    assert newer.next()
    if not stops_at_older:
        assert newer.rest()[-1].name == "done"
    assert chat.stop((one if stops_at_older else two).server) is True
    assert older.rest()[-1].error == "turn_stopped"
    if stops_at_older:
        assert newer.rest()[-1].error == "turn_stopped"
    wait_for("the end of both", lambda: not chat.stop(two.server))


def test_a_turn_that_another_actor_was_refused_hides_no_session_at_any_replica(
    one: Replica, two: Replica, provider: Provider, gate: threading.Event
) -> None:
    ada = Background(one.server, provider, actor="ada")
    bob = Background(one.server, provider, ada.session, "bob")
    running = ada.start("One.", ["a", Hold(gate)])
    assert running.event() == ("message", "a")
    bob.begin("Two.")  # it waits for Ada's turn, and is accepted after one second
    gate.set()
    assert running.reply().turn == 1
    assert bob.follow(server=two.server).rest()[-1].error == "session_forbidden"
    for server in (one.server, two.server):
        stream = server.get(f"/api/chat/{ada.session}/stream", ada.headers)
        assert stream.status == 204
        assert ada.on(server).post({"follow": True}).error == "not_found"
        assert ada.stop(server) is False


def test_a_reader_that_leaves_before_its_recording_is_found_leaves_nothing_behind(
    agents: Agents, chat: Background, two: Replica, gate: threading.Event
) -> None:
    small = agents.fresh(two.home, MAX_READERS=1)
    chat.begin("One.", ["a", Hold(gate), "b"])
    assert small.server.get("/ping").status == 200
    with frozen(two):
        reader = chat.follow(server=small.server)
        small.server.settle()
        reader.leave()
        small.server.settle()
    time.sleep(1)  # the replica finds the recording
    again = chat.follow(server=small.server)
    assert again.status == 200
    assert again.next()


@pytest.mark.full
def test_a_reader_that_comes_when_a_replica_wants_to_stop_reading_is_not_cut_off(
    one: Replica, two: Replica, provider: Provider, gate: threading.Event
) -> None:
    """A replica stops reading events two seconds after the last reader has left."""
    chats = [Background(one.server, provider) for _ in range(12)]
    for chat in chats:
        chat.begin("One.", ["a", Hold(gate), "b"])
    readers = [chat.follow(server=two.server) for chat in chats]
    assert all(reader.next() for reader in readers)
    left_at = time.monotonic()
    for reader in readers:
        reader.leave()
    readers = []
    for number, chat in enumerate(chats):
        time.sleep(max(0, left_at + 1.7 + number / 20 - time.monotonic()))
        readers.append(chat.follow(server=two.server))
        assert readers[-1].next()
    time.sleep(1)
    gate.set()
    assert [reader.rest()[-1].name for reader in readers] == ["done"] * len(readers)


def test_another_actor_reads_and_stops_nothing_anywhere(
    one: Replica, two: Replica, provider: Provider, gate: threading.Event
) -> None:
    ada = Background(one.server, provider, actor="ada")
    ada.begin("One.", ["a", Hold(gate), "b"])
    reader = ada.follow(server=two.server)
    assert reader.next()
    for body in ({"follow": True}, {"stop": True}):
        bob = Background(two.server, provider, ada.session, "bob")
        assert_failed(bob.post(body), 403, "session_forbidden", ada.session)
    gate.set()
    assert reader.rest()[-1].name == "done"


def test_a_page_resumes_at_another_replica(
    one: Replica, two: Replica, provider: Provider, gate: threading.Event
) -> None:
    page, text = Page(one.server), unique("Hello")
    provider.script(text, ["Slow, ", Hold(gate), "but sure."])
    page.act({"do": "leave", "text": text})
    threading.Timer(1, gate.set).start()
    tab = Page(two.server)
    tab.id = page.id
    (resumed,) = tab.act(RESUME)
    assert [part["text"] for part in resumed["read"]["parts"]] == ["Slow, but sure."]
    wait_for("the end", lambda: two.server.get(f"/api/chat/{page.id}/stream").status == 204)


@pytest.mark.full
def test_readers_learn_that_the_replica_was_killed_and_the_session_is_unchanged(
    agents: Agents, two: Replica, provider: Provider, gate: threading.Event
) -> None:
    dying = agents.fresh(two.home)
    chat = Background(dying.server, provider)
    assert chat.say("Zero.").turn == 1
    chat.begin("One.", ["a", Hold(gate), "b"])
    readers = [chat.follow(server=two.server) for _ in range(2)]
    assert all(reader.next() for reader in readers)
    killed_at = time.monotonic()
    dying.server.signal(signal.SIGKILL)
    for reader in readers:
        (last,) = reader.rest()
        assert last.error == "turn_lost"
    assert time.monotonic() - killed_at < LOST_SECONDS
    chat = chat.on(two.server)
    a, lost = chat.follow().rest()
    assert (a.data, lost.error) == ("a", "turn_lost")
    assert chat.stop() is False
    assert chat.recalled("Two.") == echoed("Zero.")
    chat.begin("Three.")
    assert chat.follow().rest()[-1].data["turn"] == 3
    agents.discard(dying)


@pytest.mark.full
def test_a_reader_that_has_more_events_than_valkey_learns_that_its_turn_is_lost(
    agents: Agents, two: Replica, provider: Provider
) -> None:
    dying, gates = agents.fresh(two.home), [threading.Event() for _ in "bc"]
    chat = Background(dying.server, provider)
    chat.begin("One.", ["a", Hold(gates[0]), "b", Hold(gates[1]), "c", HANG])
    reader = chat.follow()
    assert reader.next()
    with frozen(two):
        for gate in gates:  # Valkey may still get the first of them
            gate.set()
            event = reader.next()
            assert event
            time.sleep(0.5)
        dying.server.signal(signal.SIGKILL)
        assert dying.server.exit_code() != 0
    assert event
    for _ in range(2):  # also when the other replica knows the loss
        (lost,) = chat.follow(last_id=event.id, server=two.server).rest()
        assert (event.data, lost.error) == ("c", "turn_lost")
    assert chat.follow(last_id=lost.id, server=two.server).status == 204
    agents.discard(dying)


def test_a_reader_whose_replica_was_killed_continues_at_another(
    agents: Agents, chat: Background, two: Replica, gate: threading.Event
) -> None:
    dying = agents.fresh(two.home)
    chat.begin("One.", ["a", Hold(gate), "b"])
    reader = chat.follow(server=dying.server)
    first = reader.next()
    assert first
    dying.server.signal(signal.SIGKILL)
    assert dying.server.exit_code() != 0
    gate.set()
    events = chat.follow(last_id=first.id, server=two.server).rest()
    assert [event.data for event in events[:-1]] == ["b"]
    assert events[-1].name == "done"
    agents.discard(dying)


def test_a_replica_that_drains_sends_readers_of_other_turns_elsewhere(
    agents: Agents, chat: Background, two: Replica, gate: threading.Event
) -> None:
    ending = agents.fresh(two.home)
    own = chat.on(ending.server).elsewhere(session=f"{chat.session}-own")
    own = Background(ending.server, chat.provider, own.session)
    own.begin("Own.", ["a", Hold(gate), "b"])
    chat.begin("One.", ["a", Hold(gate), "b"])
    own_reader, reader = own.follow(), chat.follow(server=ending.server)
    assert own_reader.next()
    first = reader.next()
    assert first
    ending.server.signal(signal.SIGTERM)
    assert reader.rest() == []
    gate.set()
    assert own_reader.rest()[-1].name == "done"
    assert ending.server.exit_code() == 0
    assert [event.name for event in chat.follow(last_id=first.id, server=two.server).rest()] == [
        "message",
        "done",
    ]
    assert own.follow(server=two.server).rest()[-1].name == "done"
    agents.discard(ending)


def test_a_replica_that_drains_serves_no_turn_that_another_replica_has_followed_up(
    agents: Agents, chat: Background, two: Replica, gate: threading.Event
) -> None:
    ending = agents.fresh(two.home)
    own = Background(ending.server, chat.provider)
    own.begin("Own.", ["a", Hold(gate), "b"])
    old = chat.on(ending.server)
    old.begin("One.")
    assert old.follow(server=two.server).rest()[-1].name == "done"
    chat.begin("Two.", ["a", Hold(gate), "b"])
    ending.server.signal(signal.SIGTERM)
    others = (Background(ending.server, chat.provider) for _ in count())
    wait_for("a drain", lambda: next(others).try_begin("Three.").status == 503)
    assert_failed(old.post({"follow": True}), 503, "draining", chat.session)
    assert own.follow().next()
    gate.set()
    assert ending.server.exit_code() == 0
    agents.discard(ending)


def test_a_frozen_valkey_neither_slows_nor_fails_the_turn(
    chat: Background, two: Replica, one: Replica, gate: threading.Event
) -> None:
    turn_id = chat.begin("One.", ["a", Hold(gate), "b", Hold(gate), "c"])
    here, there = chat.follow(), chat.follow(server=two.server)
    assert here.next()
    assert there.next()
    with frozen(one):
        gate.set()
        events = [here.next(), here.next()]
        assert [event and event.data for event in events] == ["b", "c"]
        time.sleep(8)
    rest = there.rest()
    assert [event.data for event in rest[:-1]] == ["b", "c"]
    assert chat.follow(last_id=f"{turn_id}.3", server=two.server).rest()[-1] == rest[-1]


def test_a_turn_that_begins_while_valkey_restarts_empty_is_written_again(
    chat: Background, one: Replica, two: Replica, gate: threading.Event
) -> None:
    chat.begin("One.", ["a", Hold(gate), "b"])
    assert chat.follow(server=two.server).next()
    store = one.home.store
    assert isinstance(store, ValkeyStore)
    for key in store.client.scan_iter(match=f"*{chat.session}*"):
        store.client.delete(key)
    wait_for("its events", lambda: chat.follow(server=two.server).status == 200)
    gate.set()
    names = [event.name for event in chat.follow(server=two.server).rest()]
    assert names == ["message", "message", "done"]


def test_events_in_valkey_expire(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    replica = agents.fresh(home, EVENT_SECONDS=1)
    chat = Background(replica.server, provider)
    chat.begin("One.")
    assert chat.follow().rest()[-1].name == "done"
    store = home.store
    assert isinstance(store, ValkeyStore)
    pattern = f"*{chat.session}*"
    wait_for("an expiry", lambda: len([*store.client.scan_iter(match=pattern)]) == 1)
    wait_for("an expiry", lambda: chat.follow().status == 404)


def test_the_events_of_an_ended_session_are_deleted(chat: Background, one: Replica) -> None:
    chat.begin("One.")
    assert chat.follow().rest()[-1].name == "done"
    store = one.home.store
    assert isinstance(store, ValkeyStore)
    pattern = f"*{chat.session}*"
    wait_for("the end of the turn", lambda: len([*store.client.scan_iter(match=pattern)]) == 3)
    assert chat.end().status == 200
    wait_for("a deletion", lambda: not [*store.client.scan_iter(match=pattern)])


def test_a_session_that_another_replica_ended_has_no_events(chat: Background, two: Replica) -> None:
    chat.begin("One.")
    assert chat.follow(server=two.server).rest()[-1].name == "done"
    assert chat.follow().status == 200
    assert chat.on(two.server).end().status == 200
    wait_for("a deletion", lambda: chat.follow().status == 404)


def test_a_session_that_another_actor_began_again_belongs_to_that_actor(
    one: Replica, two: Replica, provider: Provider
) -> None:
    ada = Background(one.server, provider, actor="ada")
    ada.begin("One.")
    assert ada.follow(server=two.server).rest()[-1].name == "done"
    assert ada.on(two.server).end().status == 200
    wait_for("a deletion", lambda: ada.follow().status == 404)
    bob = Background(two.server, provider, ada.session, "bob")
    assert bob.say("Two.").turn == 1
    assert bob.follow(server=one.server).status == 404
    bob.begin("Three.")
    assert bob.follow(server=one.server).rest()[-1].data["turn"] == 2
    assert ada.follow().status == 403


def test_a_turn_with_unwritten_events_is_followed_although_valkey_does_not_have_it(
    chat: Background, one: Replica, gate: threading.Event
) -> None:
    chat.begin("One.", ["a", Hold(gate), "b"])
    reader = chat.follow()
    assert reader.next()
    store = one.home.store
    assert isinstance(store, ValkeyStore)
    one.proxy.refuse()
    for key in store.client.scan_iter(match=f"*{chat.session}*"):
        store.client.delete(key)
    gate.set()
    assert reader.rest()[-1].error == "store_unavailable"
    one.proxy.reset()
    assert chat.follow().rest()[-1].error == "store_unavailable"


def test_a_stop_does_not_hide_that_the_outcome_is_unknown(
    agents: Agents, provider: Provider, gate: threading.Event
) -> None:
    hasty = agents.hasty()
    chat = Background(hasty.server, provider)
    chat.begin("One.", ["a", Hold(gate), "b"], headers={KEY: "k"})
    reader = chat.follow()
    assert reader.next()
    hasty.proxy.at_save = "hold reply"
    gate.set()
    hasty.proxy.wait_held()
    hasty.proxy.mode = "hang"
    assert chat.stop() is True
    assert reader.rest()[-1].error == "store_unavailable"
    hasty.proxy.reset()
    chat.begin("One.", headers={KEY: "k"})
    assert [event.data for event in chat.follow().rest()[:-1]] == ["ab"]


@pytest.mark.full
def test_a_cluster(
    agents: Agents, provider: Provider, gate: threading.Event, tmp_path: Path
) -> None:
    home = agents.home()
    with valkey_cluster(tmp_path) as (host, port):
        url = f"valkey://{host}:{port}"
        one, two = (agents.fresh(home, SECRETS_VALKEY_SESSIONS=url) for _ in range(2))
        chats = [Background(one.server, provider) for _ in range(4)]
        # A cluster would take an empty pair of braces as part of the key.
        chats[0].session = f"}}{chats[0].session}"
        for chat in chats:
            chat.begin("One.", ["a", Hold(gate), "b"])
        readers = [chat.follow(server=two.server) for chat in chats]
        assert all(reader.next() for reader in readers)
        assert chats.pop().stop(two.server) is True
        assert readers.pop().rest()[-1].error == "turn_stopped"
        gate.set()
        assert [reader.rest()[-1].name for reader in readers] == ["done"] * 3


@pytest.mark.full
def test_without_valkey_only_the_replica_that_runs_the_turn_serves_readers(
    s3_agents: Agents, provider: Provider
) -> None:
    one, two = s3_agents.pair()
    chat = Background(one.server, provider)
    reply = chat.on(two.server).post({"follow": True})
    assert_failed(reply, 404, "not_found", chat.session)
    chat.begin("One.")
    assert chat.follow().rest()[-1].name == "done"
    reply = chat.on(two.server).post({"follow": True})
    assert_failed(reply, 409, "turn_elsewhere", chat.session)
    assert chat.stop(two.server) is False


@pytest.mark.full
def test_without_valkey_another_replica_does_not_say_that_it_stopped_a_turn(
    s3_agents: Agents, provider: Provider, gate: threading.Event
) -> None:
    one, two = s3_agents.pair()
    page, text = Page(one.server), unique("Hello")
    provider.script(text, ["Slow, ", Hold(gate), "but sure."])
    page.act({"do": "leave", "text": text})
    path = f"/api/chat/{page.id}/stream"
    reply = two.server.send(None, method="DELETE", path=path).reply()
    assert_failed(reply, 409, "turn_elsewhere", page.id)
    reader = one.server.send(None, method="GET", path=path)
    assert reader.head().status == 200
    assert one.server.send(None, method="DELETE", path=path).reply().status == 204
    assert b'{"type":"abort"}' in reader.reply().body


def test_a_replica_serves_the_last_events_if_the_first_were_dropped(
    agents: Agents, provider: Provider
) -> None:
    home = agents.home()
    here, there = (agents.fresh(home, MAX_EVENT_BYTES=1024) for _ in range(2))
    chat = Background(here.server, provider)
    turn_id = chat.begin("One.", [f"{number} ".rjust(100) for number in range(40)])
    reader = chat.follow(last_id=f"{turn_id}.40", server=there.server)
    assert reader.rest()[-1].name == "done"
    assert chat.follow(server=there.server).status == 409
