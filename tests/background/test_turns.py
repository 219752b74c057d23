"""Background turns of one process: they outlive their clients, who follow and stop them."""

import signal
import threading
import time
from typing import Any

import httpx
import pytest

from tests.auth.issuer import Issuer
from tests.background.follower import Background, Event, end_of_head
from tests.conformance.chat import assert_failed, echoed
from tests.conformance.client import KEY, Exchange
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import CUT, Flood, Hold
from tests.support.files import png


def parts(events: list[Event]) -> list[str]:
    return [event.data for event in events if event.name == "message"]


def test_the_response_comes_at_once_and_the_turn_continues_without_a_client(
    chat: Background, gate: threading.Event
) -> None:
    turn_id = chat.begin("One.", ["Slow, ", Hold(gate), "but sure."])
    chat.call("One.")
    assert chat.server.get("/ping").json["status"] == "HealthyBusy"
    first = chat.follow()
    event = first.next()
    assert event
    assert (event.id, event.data) == (f"{turn_id}.1", "Slow, ")
    first.leave()
    gate.set()
    *events, done = chat.follow().rest()
    assert parts(events) == ["Slow, ", "but sure."]
    assert [event.id for event in (*events, done)] == [f"{turn_id}.{n}" for n in (1, 2, 3)]
    body = {"session_id": chat.session, "turn": 1, "model": "test-model"}
    assert (done.name, done.data) == ("done", body)
    assert chat.recalled() == [("user", "One."), ("assistant", "Slow, but sure.")]


def test_a_client_that_leaves_before_the_response_loses_nothing(chat: Background) -> None:
    body = {"prompt": f"One.{chat.tag}", "background": True}
    exchange = chat.send(body)
    exchange.leave()
    chat.call("One.")
    while chat.follow().status == 404:
        time.sleep(0.05)
    assert chat.follow().rest()[-1].name == "done"


def test_a_reader_continues_after_its_last_event(chat: Background) -> None:
    turn_id = chat.begin("One.", ["a", "b", "c"])
    whole = chat.follow().rest()
    assert parts(whole) == ["a", "b", "c"]
    assert chat.follow(last_id=f"{turn_id}.2").rest() == whole[2:]
    after = chat.follow(last_id=whole[-1].id)
    assert (after.status, after.rest()) == (204, []), "an EventSource would reconnect for ever"
    assert chat.follow(last_id="of-another-turn0.2").rest() == whole
    in_body = {"follow": True, "last_event_id": f"{turn_id}.3"}
    assert b"done" in chat.post(in_body).body
    get = chat.server.send(
        None, chat.headers, method="GET", path=f"/invocations/{chat.session}/events"
    )
    assert get.reply().body == chat.post({"follow": True}).body


def test_head_is_answered_at_once(chat: Background, gate: threading.Event) -> None:
    chat.begin("One.", ["a", Hold(gate), "b"])
    path = f"/invocations/{chat.session}/events"
    assert end_of_head(chat.server, path, chat.headers) == 200
    gate.set()


def test_two_readers_and_a_slow_one_see_the_same(chat: Background, gate: threading.Event) -> None:
    chat.begin("One.", ["a", Hold(gate), Flood(300, 1000)])
    chat.call("One.")
    slow = Exchange(chat.server.address, receive_buffer=4096)
    slow.send("POST", "/invocations", chat.headers, {"follow": True})
    readers = [chat.follow(), chat.follow()]
    assert all(reader.next() for reader in readers)
    gate.set()
    first, second = (reader.rest() for reader in readers)
    assert first == second
    assert first[-1].name == "done"
    body = slow.reply().body  # it has read nothing until now
    assert body.count(b"\nid: ") == len(first)
    assert b"event: done" in body


def test_stalled_readers_slow_neither_the_turn_nor_another_reader(
    server: Server, provider: Provider
) -> None:
    def seconds_of_turn(stalled: int) -> float:
        """Return the time from the first event to the last, beside readers that read nothing."""
        chat, gate = Background(server, provider), threading.Event()
        chat.begin("One.", ["a", Hold(gate), Flood(500, 2000)])
        readers = [Exchange(server.address, receive_buffer=4096) for _ in range(stalled)]
        for it in readers:
            it.send("POST", "/invocations", chat.headers, {"follow": True})
            assert it.head().status == 200
        reader = chat.follow()
        assert reader.next()
        began_at = time.monotonic()
        gate.set()
        assert len(reader.rest()) == 501
        seconds = time.monotonic() - began_at
        for it in readers:
            it.leave()
        return seconds

    # The other load of the machine changes: compare the fastest of each kind.
    alone, beside = [seconds_of_turn(0)], [seconds_of_turn(4)]
    while min(beside) >= 1.5 * min(alone):
        assert len(beside) < 30, (alone, beside)
        alone.append(seconds_of_turn(0))
        beside.append(seconds_of_turn(4))


def test_a_stopped_turn_is_not_saved(chat: Background, gate: threading.Event) -> None:
    chat.begin("One.", ["a", Hold(gate), "b"])
    reader = chat.follow()
    assert reader.next()
    assert chat.stop() is True
    (last,) = reader.rest()
    assert last.error == "turn_stopped"
    chat.gone("One.")
    assert chat.stop() is False
    assert chat.follow().rest()[-1].error == "turn_stopped"
    assert chat.say("Two.").turn == 1
    assert chat.recalled() == echoed("Two.")


def test_a_turn_that_is_stopped_while_it_waits_is_rejected(
    chat: Background, gate: threading.Event
) -> None:
    running = chat.start("One.", ["a", Hold(gate), "b"])
    assert running.event() == ("message", "a")
    waiting = chat.send({"prompt": f"Two.{chat.tag}", "background": True})
    while not chat.stop():
        pass
    assert_failed(waiting.reply(), 409, "turn_stopped", chat.session)
    assert chat.follow().status == 404
    gate.set()
    assert running.reply().turn == 1
    assert chat.recalled() == [("user", "One."), ("assistant", "ab")]


def test_a_failure_is_the_last_event(chat: Background) -> None:
    chat.begin("One.", ["a", CUT])
    a, failure = chat.follow().rest()
    assert (a.data, failure.error) == ("a", "model_failed")
    chat.begin("Two.", [CUT])
    (failure,) = chat.follow().rest()
    assert failure.error == "model_failed"


def test_a_rejected_turn_has_the_response_of_any_turn(chat: Background, server: Server) -> None:
    reply = server.post({"prompt": " ", "background": True}, chat.headers)
    assert_failed(reply, 400, "invalid_request", chat.session)
    for value in ("true", 1, None):
        reply = server.post({"prompt": "One.", "background": value}, chat.headers)
        assert_failed(reply, 400, "invalid_request", chat.session)
    reply = server.post({"follow": True, "prompt": "One."}, chat.headers)
    assert_failed(reply, 400, "invalid_request", chat.session)
    assert chat.follow().status == 404
    assert server.post({"follow": True}).status == 400


def test_a_large_prompt_runs_in_the_background_too(chat: Background) -> None:
    chat.begin("One. " * 2000, ["a"])
    assert chat.follow().rest()[-1].name == "done"


def test_a_form_runs_in_the_background_too(chat: Background, gate: threading.Event) -> None:
    def post(**fields: str) -> httpx.Response:
        host, port = chat.server.address
        photo: Any = ("files", ("photo.png", png(), "image/png"))
        url = f"http://{host}:{port}/invocations"
        parts = [photo] if "prompt" in fields else []
        parts += [(name, (None, value)) for name, value in fields.items()]
        return httpx.post(url, files=parts, headers=chat.headers, timeout=60)

    chat.script("One.", ["a", Hold(gate), "b"])
    begun = post(prompt=f"One.{chat.tag}", background="true")
    assert begun.status_code == 202, begun.text
    turn_id = begun.json()["turn_id"]
    reader = chat.follow()
    assert reader.next()
    assert post(prompt="Two.", stop="true").status_code == 400
    assert post(prompt="Two.", background="yes").status_code == 400
    assert post(prompt="Two.", background="1").status_code == 400
    assert post(stop="true").json()["stopped"] is True
    assert reader.rest()[-1].error == "turn_stopped"
    rest = post(follow="true", last_event_id=f'"{turn_id}.1"').text
    assert rest.startswith(f"id: {turn_id}.2\nevent: error")
    gate.set()


def test_without_the_field_a_turn_is_as_always(chat: Background, gate: threading.Event) -> None:
    assert chat.say("One.").turn == 1
    running = chat.start("Two.", ["a", Hold(gate)])
    assert running.event() == ("message", "a")
    running.leave()
    chat.gone("Two.")
    assert chat.follow().status == 404


def test_a_repeated_key_runs_nothing(chat: Background) -> None:
    first = chat.begin("One.", ["a"], headers={KEY: "k"})
    assert parts(chat.follow().rest()) == ["a"]
    second = chat.begin("One.", headers={KEY: "k"})
    assert first != second
    assert parts(chat.follow().rest()) == ["a"]
    assert len(chat.calls("One.")) == 1


def test_another_actor_reads_and_stops_nothing(
    server: Server, provider: Provider, gate: threading.Event
) -> None:
    ada = Background(server, provider, actor="ada")
    bob = Background(server, provider, ada.session, "bob")
    ada.begin("One.", ["a", Hold(gate), "b"])
    ada.call("One.")
    for body in ({"follow": True}, {"stop": True}):
        assert_failed(bob.post(body), 403, "session_forbidden", ada.session)
    path = f"/invocations/{ada.session}/events"
    assert server.get(path, bob.headers).status == 403
    gate.set()
    assert ada.follow().rest()[-1].name == "done"
    assert_failed(bob.try_begin("Two."), 403, "session_forbidden", ada.session)
    for body in ({"follow": True}, {"stop": True}):
        assert_failed(bob.post(body), 403, "session_forbidden", ada.session)


def test_a_turn_that_another_actor_was_refused_hides_no_session(
    server: Server, provider: Provider, gate: threading.Event
) -> None:
    ada = Background(server, provider, actor="ada")
    bob = Background(server, provider, ada.session, "bob")
    running = ada.start("One.", ["a", Hold(gate)])
    assert running.event() == ("message", "a")
    bob.begin("Two.")  # it waits for Ada's turn, and is accepted after one second
    gate.set()
    assert running.reply().turn == 1
    assert bob.follow().rest()[-1].error == "session_forbidden"
    assert_failed(ada.post({"follow": True}), 404, "not_found", ada.session)
    assert ada.stop() is False


def test_the_token_is_checked_for_each_request(
    auth_fleet: Fleet, issuer: Issuer, provider: Provider, gate: threading.Event
) -> None:
    server = auth_fleet.fresh(**issuer.environment)
    chat = Background(server, provider)
    ada, bob = ({"Authorization": f"Bearer {issuer.token(sub=name)}"} for name in ("ada", "bob"))
    chat.begin("One.", ["a", Hold(gate), "b"], headers=ada)
    chat.call("One.")
    for body in ({"follow": True}, {"stop": True}):
        assert chat.post(body).status == 401
        assert chat.post(body, bob).status == 403
    gate.set()
    assert chat.follow(headers=ada).rest()[-1].name == "done"


def test_background_turns_are_limited(
    fleet: Fleet, provider: Provider, gate: threading.Event
) -> None:
    server = fleet.shared(MAX_BACKGROUND_TURNS=2, MAX_BACKGROUND_TURNS_PER_ACTOR=1)
    ada, other, bob, carol = (
        Background(server, provider, actor=name) for name in ("ada", "ada", "bob", "carol")
    )
    ada.begin("One.", ["a", Hold(gate)])
    reply = other.try_begin("One.")
    assert_failed(reply, 429, "rate_limited", other.session)
    bob.begin("One.", ["a", Hold(gate)])
    reply = carol.try_begin("One.")
    assert_failed(reply, 503, "server_busy", carol.session)
    assert reply.headers["Retry-After"]
    assert carol.say("One.").status == 200
    gate.set()
    for chat in (ada, bob):
        assert chat.follow().rest()[-1].name == "done"
    carol.begin("Two.")
    assert carol.follow().rest()[-1].name == "done"


def test_turns_are_followed_and_stopped_although_max_turns_run(
    fleet: Fleet, provider: Provider, gate: threading.Event
) -> None:
    server = fleet.shared(MAX_TURNS=1)
    chat = Background(server, provider)
    chat.begin("One.", ["a", Hold(gate)])
    assert Background(server, provider).try_begin("Two.").status == 503
    reader = chat.follow()
    assert reader.next()
    assert chat.stop() is True
    assert reader.rest()[-1].error == "turn_stopped"


def test_a_reader_gets_events_that_come_faster_than_it_reads(
    fleet: Fleet, provider: Provider, gate: threading.Event
) -> None:
    """A tool's image is one such event: it is larger than all that the recording keeps."""
    chat = Background(fleet.shared(MAX_EVENT_BYTES=1024), provider)
    chat.begin("One.", ["a", Hold(gate), *["x" * 20_000] * 40])
    reader = chat.follow()
    assert reader.next()
    gate.set()
    time.sleep(1)  # it does not read
    events = reader.rest()
    assert (len(events), events[-1].name) == (41, "done")


def test_a_reader_that_needs_dropped_events_is_told(
    fleet: Fleet, provider: Provider, gate: threading.Event
) -> None:
    server = fleet.shared(
        MAX_EVENT_BYTES=10_000, MAX_REPLY_BYTES=100_000_000, MAX_SNAPSHOT_BYTES=100_000_000
    )
    chat = Background(server, provider)
    turn_id = chat.begin("One.", ["a", Hold(gate), Flood(16_000, 1000)])
    slow = Exchange(server.address, receive_buffer=4096)
    slow.send("POST", "/invocations", chat.headers, {"follow": True})
    assert slow.head().status == 200
    gate.set()
    while server.get("/ping").json["status"] == "HealthyBusy":
        time.sleep(0.05)
    body = slow.reply().body.decode()
    assert '"type":"events_lost"' in body.split("\n\n")[-2]
    assert "event: done" not in body
    assert_failed(chat.post({"follow": True}), 409, "events_lost", chat.session)
    last = chat.follow(last_id=f"{turn_id}.16000").rest()[-1]
    assert last.name == "done", last


def test_readers_are_limited(fleet: Fleet, provider: Provider, gate: threading.Event) -> None:
    server = fleet.shared(MAX_READERS=2)
    chat = Background(server, provider)
    chat.begin("One.", ["a", Hold(gate)])
    readers = [chat.follow(), chat.follow()]
    assert all(reader.next() for reader in readers)
    assert_failed(chat.post({"follow": True}), 429, "rate_limited", chat.session)
    readers.pop().leave()
    while chat.follow().status == 429:
        time.sleep(0.05)


def test_events_expire(fleet: Fleet, provider: Provider) -> None:
    server = fleet.shared(EVENT_SECONDS=1)
    chat = Background(server, provider)
    chat.begin("One.")
    assert chat.follow().rest()[-1].name == "done"
    deadline = time.monotonic() + 10
    while chat.follow().status != 404:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert chat.recalled() == echoed("One.")


def test_the_events_of_an_ended_session_are_gone(chat: Background) -> None:
    chat.begin("One.")
    assert chat.follow().rest()[-1].name == "done"
    assert chat.end().status == 200
    assert chat.follow().status == 404


def test_a_drain_waits_for_the_turn_and_refuses_new_ones(
    fleet: Fleet, provider: Provider, gate: threading.Event
) -> None:
    server = fleet.fresh()
    chat = Background(server, provider)
    chat.begin("One.", ["a", Hold(gate), "b"])
    reader = chat.follow()
    assert reader.next()
    server.signal(signal.SIGTERM)
    other = Background(server, provider)
    while (reply := other.try_begin("Two.")).status == 202:
        other = Background(server, provider)
    assert_failed(reply, 503, "draining", other.session)
    gate.set()
    assert [event.name for event in reader.rest()] == ["message", "done"]
    assert server.exit_code() == 0


def test_a_drain_cancels_the_turn_after_the_grace_time(
    fleet: Fleet, provider: Provider, gate: threading.Event
) -> None:
    server = fleet.fresh(SHUTDOWN_GRACE_SECONDS=1)
    chat = Background(server, provider)
    chat.begin("One.", ["a", Hold(gate), "b"])
    reader = chat.follow()
    assert reader.next()
    server.signal(signal.SIGTERM)
    assert reader.rest()[-1].error == "draining"
    assert server.exit_code() == 0


@pytest.mark.full
@pytest.mark.timeout(900)
def test_ten_thousand_turns_leave_no_memory_behind(fleet: Fleet, provider: Provider) -> None:
    # Without a limit, Node lets its memory grow before it collects.
    limit = "--max-semi-space-size=8 --max-old-space-size=128"
    server = fleet.fresh(offline=True, EVENT_SECONDS=1, NODE_OPTIONS=limit)

    def megabytes_after(turns: int) -> float:
        for _ in range(turns):
            chat = Background(server, provider)
            chat.begin("One.")
            assert chat.follow().rest()[-1].name == "done"
        return server.megabytes

    first = megabytes_after(2_000)
    assert megabytes_after(8_000) < first + 20
