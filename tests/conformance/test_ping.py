"""/ping: it says whether a turn runs, and it answers while one does."""

import threading
import time

import pytest

from tests.conformance.chat import Chat
from tests.conformance.client import SESSION
from tests.conformance.server import Server
from tests.conformance.steps import HANG, Drip, Hold, Step

pytestmark = pytest.mark.about("the server")


def status(server: Server) -> str:
    reply = server.get("/ping")
    assert (reply.status, reply.content_type) == (200, "application/json")
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert list(reply.json) == ["status", "time_of_last_update"]
    updated = reply.json["time_of_last_update"]
    assert type(updated) is int
    assert 0 <= time.time() - updated < 3600
    assert b" " not in reply.body
    return str(reply.json["status"])


def test_it_is_busy_while_a_turn_runs(chat: Chat, gate: threading.Event) -> None:
    assert status(chat.server) == "Healthy"
    exchange = chat.start("Hello.", [Hold(gate), "Hi."])
    chat.call("Hello.")
    assert status(chat.server) == "HealthyBusy"
    gate.set()
    assert exchange.reply().turn == 1
    assert status(chat.server) == "Healthy"


@pytest.mark.parametrize("step", [[HANG], ["Well, ", HANG], [Drip(10_000, 5)]])
def test_it_is_healthy_again_when_the_client_has_left(chat: Chat, step: Step) -> None:
    exchange = chat.start("Hello.", step)
    chat.call("Hello.")
    assert status(chat.server) == "HealthyBusy"
    exchange.leave()
    chat.gone("Hello.")
    chat.server.settle()
    assert status(chat.server) == "Healthy"


def test_its_time_is_that_of_the_last_change(chat: Chat, gate: threading.Event) -> None:
    def updated() -> int:
        return int(chat.server.get("/ping").json["time_of_last_update"])

    idle = updated()
    exchange = chat.start("Hello.", [Hold(gate), "Hi."])
    chat.call("Hello.")
    busy = updated()
    time.sleep(1.1)
    assert updated() == busy
    gate.set()
    assert exchange.reply().turn == 1
    assert idle <= busy < updated()


def test_it_is_healthy_after_a_failure(chat: Chat) -> None:
    chat.say("Hello.", [])
    assert status(chat.server) == "Healthy"


def test_an_address_in_another_form_is_the_same(server: Server) -> None:
    for path in ("http://127.0.0.1/ping", "HTTPS://127.0.0.1:80/ping?a=/b", "/%70ing", "/ping?a=%"):
        assert server.get(path).status == 200, path
    for path in ("//127.0.0.1/ping", "/%2Fping", "/%zzping", "/%ffping", "/ping/", "/ping%3Fa"):
        assert server.get(path).status == 404, path


def test_it_does_not_care_about_headers_of_a_session(server: Server) -> None:
    assert server.get("/ping", {SESSION: "no good"}).status == 200
