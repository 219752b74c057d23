"""More turns at once than a process takes: the rest is refused, and it stays awake."""

import json
import threading
import time

import pytest

from tests.conformance.chat import assert_failed
from tests.conformance.client import JSON, Exchange
from tests.conformance.conftest import NewChat
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import Hold
from tests.stores.servers import wait_for

pytestmark = pytest.mark.about("turns")

MAX_TURNS = 64  # the default
BURST = 300
BODY = 1_000_000


@pytest.fixture
def server(fleet: Fleet) -> Server:
    """A server with room for two turns."""
    return fleet.shared(MAX_TURNS=2)


def test_a_turn_that_waits_has_a_place_too(new_chat: NewChat, gate: threading.Event) -> None:
    chat, other = new_chat(), new_chat()
    running = chat.start("One.", [Hold(gate), "Done."])
    chat.call("One.")
    waiting = chat.start("Two.")
    chat.server.settle()
    refused = other.say("One too many.")
    assert_failed(refused, 503, "server_busy", other.session)
    assert int(refused.headers["Retry-After"]) > 0
    assert_failed(other.end(), 503, "server_busy", other.session)
    assert chat.server.get("/ping").json["status"] == "HealthyBusy"
    gate.set()
    assert [exchange.reply().turn for exchange in (running, waiting)] == [1, 2]
    assert other.calls("One too many.") == []
    assert other.say("Now there is room.").turn == 1


def test_it_is_refused_before_its_body_is_read(new_chat: NewChat, gate: threading.Event) -> None:
    chats = [new_chat(), new_chat()]
    running = [chat.start("One.", [Hold(gate), "Done."]) for chat in chats]
    for chat in chats:
        chat.call("One.")
    late = Exchange(chats[0].server.address)
    late.write(f"POST /invocations HTTP/1.1\r\nHost: {late.host}\r\n".encode())
    late.write(b"Content-Length: 1000\r\n\r\n")
    assert late.reply().error == "server_busy"
    gate.set()
    assert [exchange.reply().turn for exchange in running] == [1, 1]


def test_it_is_refused_when_others_were_quicker_to_send_their_bodies(
    new_chat: NewChat, gate: threading.Event
) -> None:
    chats = [new_chat() for _ in range(3)]
    bodies = [json.dumps({"prompt": f"One.{chat.tag}"}).encode() for chat in chats]
    exchanges = [Exchange(chat.server.address) for chat in chats]
    for chat, exchange, body in zip(chats, exchanges, bodies, strict=True):
        chat.provider.script(f"One.{chat.tag}", [Hold(gate), "Done."])
        exchange.write(f"POST /invocations HTTP/1.1\r\nHost: {exchange.host}\r\n".encode())
        exchange.write(f"Content-Length: {len(body)}\r\n\r\n".encode())
    chats[0].server.settle()
    for chat, exchange, body in zip(chats[:2], exchanges, bodies, strict=False):
        exchange.write(body)
        chat.call("One.")
    exchanges[2].write(bodies[2])
    assert exchanges[2].reply().error == "server_busy"
    gate.set()
    assert [exchange.reply().turn for exchange in exchanges[:2]] == [1, 1]


def test_bodies_that_never_end_take_the_places_of_turns(fleet: Fleet) -> None:
    server = fleet.fresh(MAX_TURNS=2)
    head = f"POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY}\r\n\r\n"
    unfinished = [Exchange(server.address) for _ in range(3)]
    for exchange in unfinished:
        exchange.write(head.encode() + b" " * (BODY - 1))
        server.settle()
    assert unfinished[2].reply().error == "server_busy"
    assert not any(exchange.answered(within=0) for exchange in unfinished[:2])
    unfinished[0].leave()
    server.settle()
    assert server.post({"prompt": "Now there is room."}).status == 200


def test_a_token_is_checked_before_the_body_is_read(fleet: Fleet) -> None:
    server = fleet.fresh(MAX_TURNS=1, API_TOKEN="sesame")
    for _ in range(2):
        exchange = Exchange(server.address)
        exchange.write(b"POST /invocations HTTP/1.1\r\nHost: localhost\r\n")
        exchange.write(b"Content-Length: 1000\r\n\r\n")
        assert exchange.reply(keep=True).error == "unauthorized"


def test_a_server_that_is_full_answers_pings(
    fleet: Fleet, provider: Provider, gate: threading.Event
) -> None:
    server, prompt = fleet.fresh(), f"All at once, {fleet.target.name}."
    assert server.post({"prompt": "Wake up."}).status == 200
    provider.script(prompt, [Hold(gate), "Done."], endless=True)
    began = time.monotonic()
    running = [server.send({"prompt": prompt}, JSON) for _ in range(MAX_TURNS)]

    def ended() -> list[Exchange]:
        return [one for one in running if one.answered(within=0)]

    wait_for("a full server", lambda: len(provider.calls_for(prompt)) >= MAX_TURNS or ended())
    filling = time.monotonic() - began
    assert [one.reply() for one in ended()] == [], "a turn ended before the server was full"
    refused = [server.send({"prompt": prompt}, JSON) for _ in range(BURST)]
    slowest = 0.0
    for _ in range(20):
        began = time.monotonic()
        assert server.get("/ping").json["status"] == "HealthyBusy"
        slowest = max(slowest, time.monotonic() - began)
    figures = f"full in {filling * 1000:.0f} ms, a ping of {slowest * 1000:.0f} ms"
    print(f"{fleet.target.name}: {figures}")
    assert {one.reply().error for one in refused} == {"server_busy"}
    gate.set()
    assert {one.reply().status for one in running} == {200}
    assert len(provider.calls_for(prompt)) == MAX_TURNS
    # A ping waits for the requests before it. If a refusal took as long as the start of a turn, all
    # refusals would take about five times `filling`.
    assert slowest < 2 * filling + 1
