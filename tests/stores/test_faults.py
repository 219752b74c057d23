"""A store that fails: the turn fails with it in bounded time, and the session goes on."""

import threading
import time
from contextlib import suppress

import pytest

from tests.conformance.chat import Chat, assert_failed, echoed
from tests.conformance.client import JSON, KEY
from tests.conformance.provider import Provider
from tests.conformance.steps import Hold
from tests.conformance.waiting import ask, runs
from tests.stores.agents import HASTY, Agents, Replica, on

DOWN = (503, "store_unavailable")


@pytest.mark.spread
def test_a_store_that_is_down_is_told_before_the_model_is_called(
    chat: Chat, beside: Chat, one: Replica
) -> None:
    chat.say("One.")
    one.proxy.refuse()
    assert_failed(chat.say("Two.", headers=JSON), *DOWN, chat.session)
    assert_failed(chat.end(), *DOWN, chat.session)
    assert chat.calls("Two.") == []
    assert one.server.get("/ping").json["status"] == "Healthy"
    one.proxy.reset()
    assert chat.say("Three.").turn == 2
    assert beside.recalled() == echoed("One.", "Three.")


@pytest.mark.spread
def test_a_store_that_goes_down_in_a_turn_keeps_nothing_of_it(
    chat: Chat, beside: Chat, one: Replica, gate: threading.Event
) -> None:
    chat.say("One.")
    before = one.home.store.read(chat.session)
    running = chat.start("Two.", [Hold(gate), "Two."], headers=JSON)
    chat.call("Two.")
    one.proxy.refuse()
    gate.set()
    assert_failed(running.reply(), *DOWN, chat.session)
    assert one.home.store.read(chat.session) == before
    one.proxy.reset()
    assert chat.say("Three.").turn == 2
    assert beside.recalled() == echoed("One.", "Three.")


@pytest.mark.spread
def test_a_save_that_never_arrived_can_be_sent_again(
    chat: Chat, beside: Chat, one: Replica
) -> None:
    chat.say("One.")
    one.proxy.at_save = "cut request"
    first = chat.say("Two.", headers={**JSON, KEY: "key-2"})
    assert one.proxy.held.is_set()
    again = first if first.status == 200 else chat.say("Two.", headers={**JSON, KEY: "key-2"})
    if first.status != 200:  # its client may have tried again by itself
        assert_failed(first, *DOWN, chat.session)
    body = {"session_id": chat.session, "turn": 2, "model": "test-model"}
    assert again.json == {**body, "reply": "You said: Two."}
    assert beside.recalled() == echoed("One.", "Two.")


@pytest.mark.spread
def test_a_save_whose_reply_was_lost_is_replayed(chat: Chat, beside: Chat, one: Replica) -> None:
    chat.say("One.")
    one.proxy.at_save = "cut reply"
    first = chat.say("Two.", headers={**JSON, KEY: "key-2"})
    assert one.proxy.held.is_set()
    if first.status != 200:
        assert_failed(first, *DOWN, chat.session)
    assert one.home.store.turns(chat.session) == 2
    again = chat.say("Two.", headers={**JSON, KEY: "key-2"})
    assert again.json == {"session_id": chat.session, "turn": 2, "reply": "You said: Two."}
    assert len(chat.calls("Two.")) == 1
    assert chat.say("Three.").turn == 3
    assert beside.recalled() == echoed("One.", "Two.", "Three.")


@pytest.mark.spread
def test_a_client_that_leaves_in_the_save_leaves_a_committed_turn(
    chat: Chat, beside: Chat, one: Replica
) -> None:
    chat.say("One.")
    one.proxy.at_save = "hold request"
    leaver = chat.start("Two.", headers=JSON)
    one.proxy.wait_held()
    leaver.leave()
    one.server.settle()
    one.proxy.release.set()
    assert chat.say("Three.").turn == 3
    assert beside.recalled() == echoed("One.", "Two.", "Three.")


@pytest.mark.one_each
def test_a_save_that_fails_in_the_drain_is_a_failure_of_the_store(
    agents: Agents, provider: Provider, gate: threading.Event
) -> None:
    one = agents.fresh(agents.home(), SHUTDOWN_GRACE_SECONDS=1, STORE_TIMEOUT_SECONDS=3)
    chat = Chat(one.server, provider)
    chat.say("One.")
    running = chat.start("Two.", [Hold(gate), "Two."])
    chat.call("Two.")
    one.proxy.mode = "hang"
    gate.set()
    one.server.settle()
    one.server.signal()
    with suppress(OSError):
        running.reply()
    one.server.exit_code()
    [line] = [line for line in one.server.log.splitlines() if "outcome=" in line][1:]
    assert "outcome=store_unavailable" in line
    one.proxy.reset()


@pytest.mark.full
def test_a_conflict_in_the_drain_is_the_outcome_of_the_turn(
    agents: Agents, provider: Provider
) -> None:
    home = agents.home()
    one = agents.fresh(home, SHUTDOWN_GRACE_SECONDS=1, STORE_TIMEOUT_SECONDS=20)
    chat = Chat(one.server, provider)
    chat.say("One.")
    beside = on(agents.fresh(home).server, chat)
    assert beside.server.get("/ping").status == 200
    one.proxy.at_save = "hold request"
    running = chat.start("Two.")
    one.proxy.wait_held()
    assert beside.say("Other.").turn == 2
    one.server.signal()
    time.sleep(4)  # the grace time ends
    one.proxy.release.set()
    with suppress(OSError):
        running.reply()
    one.server.exit_code()
    [line] = [line for line in one.server.log.splitlines() if "outcome=" in line][1:]
    assert "outcome=session_conflict" in line


# The store hangs until the test lets it go on: that there is a reply shows that calls are bounded.


@pytest.mark.spread
def test_a_load_from_a_store_that_hangs_is_bounded(
    chat: Chat, beside: Chat, hasty: Replica
) -> None:
    bounded_load(chat, beside, hasty, "hang")


@pytest.mark.one_each
@pytest.mark.parametrize("mode", ["drip", "cut"])
def test_a_load_from_a_failing_store_is_bounded(
    chat: Chat, beside: Chat, hasty: Replica, mode: str
) -> None:
    bounded_load(chat, beside, hasty, mode)


def bounded_load(chat: Chat, beside: Chat, hasty: Replica, mode: str) -> None:
    """A turn fails, and before the model, while the store behaves like this."""
    chat.say("One.", ["x" * 2000])
    beside.say("Two.", ["y" * 2000])
    third = on(hasty.server, chat)
    hasty.proxy.mode = mode
    assert_failed(third.say("Three.", headers=JSON), *DOWN, chat.session)
    assert hasty.proxy.mode == mode
    assert chat.calls("Three.") == []
    hasty.proxy.reset()
    assert chat.say("Four.").turn == 3
    assert [text for _, text in beside.recalled()[-2:]] == ["Four.", "You said: Four."]


# A silent stream begins with a comment after a second; these are statuses all the same.
QUICK = {"KEEP_ALIVE_SECONDS": 1, "STORE_TIMEOUT_SECONDS": HASTY}


@pytest.mark.full
def test_a_stream_that_waits_for_the_store_has_a_status(agents: Agents, provider: Provider) -> None:
    replica = agents.fresh(agents.home(timeout_ms=HASTY * 1000), **QUICK)
    chat = Chat(replica.server, provider)
    chat.say("One.")
    replica.proxy.mode = "hang"
    assert_failed(chat.say("Two."), *DOWN, chat.session)
    assert chat.calls("Two.") == []


@pytest.mark.full
def test_an_approval_that_waits_for_the_store_has_a_status(
    waiting_agents: Agents, provider: Provider
) -> None:
    replica = waiting_agents.fresh(waiting_agents.home(timeout_ms=HASTY * 1000), **QUICK)
    chat = Chat(replica.server, provider)
    waiting = ask(chat, ["Deleted."])
    replica.proxy.at_save = "hold request"
    going_on = chat.send({"approve": waiting})
    replica.proxy.wait_held()
    replica.proxy.mode = "hang"
    assert_failed(going_on.reply(), *DOWN, chat.session)
    assert runs(chat) == 0


@pytest.mark.one_each
@pytest.mark.parametrize("mode", ["hang", "hold reply"])
def test_a_save_to_a_store_that_is_slow_is_bounded(
    chat: Chat, beside: Chat, hasty: Replica, gate: threading.Event, mode: str
) -> None:
    chat.say("One.")
    third = on(hasty.server, chat)
    running = third.start("Two.", [Hold(gate), "Two."], headers={**JSON, KEY: "key-2"})
    chat.call("Two.")
    if mode == "hang":
        hasty.proxy.mode = mode
    else:
        hasty.proxy.at_save = mode
    gate.set()
    first = running.reply()
    assert not hasty.proxy.release.is_set()
    if (mode, first.status) != ("hold reply", 200):  # it saw its own save
        assert_failed(first, *DOWN, chat.session)
    hasty.proxy.reset()
    hasty.proxy.cut()
    committed = hasty.home.store.turns(chat.session)
    assert committed == (1 if mode == "hang" else 2)
    assert chat.say("Two.", headers={**JSON, KEY: "key-2"}).json["turn"] == 2
    assert len(chat.calls("Two.")) == 3 - committed
    assert beside.say("Three.").turn == 3


# Not Valkey: a client may have one connection to it for all, and the proxy holds what is on it.
@pytest.mark.stores("s3", "custom-rest", "custom-lambda")
@pytest.mark.spread
def test_other_sessions_do_not_wait_for_a_slow_save(chat: Chat, one: Replica) -> None:
    other = Chat(one.server, chat.provider)
    one.proxy.at_save = "hold reply"
    slow = chat.start("Slow.")
    one.proxy.wait_held()
    assert other.say("Quick.").turn == 1
    one.proxy.release.set()
    assert slow.reply().turn == 1


@pytest.mark.stores("s3")
@pytest.mark.parametrize("fault", ["cut", "changed"])
@pytest.mark.spread
def test_a_body_that_is_spoilt_on_its_way_is_read_again(
    chat: Chat, beside: Chat, one: Replica, fault: str
) -> None:
    """It is no reason to quarantine a session, and no internal error."""
    store = one.home.store
    for times, status in ((1, 200), (2, 503)):
        beside.say("One.")
        stored = store.read(chat.session)
        assert stored is not None
        store.write(chat.session, stored)  # by a client that adds a checksum
        one.proxy.spoil(b"You said", fault, times)
        reply = chat.say("Two.", headers=JSON)
        assert reply.status == status, reply
        if status == 503:
            assert_failed(reply, *DOWN, chat.session)
        assert one.proxy.spoilt == times
        assert store.quarantined(chat.session) == []
    assert chat.recalled() == echoed("One.", "Two.", "One.")
