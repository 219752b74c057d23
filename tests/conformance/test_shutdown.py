"""SIGTERM: running turns finish, new ones are refused, and the process ends in time with 0."""

import http.client
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conformance.chat import Chat, assert_done, assert_failed
from tests.conformance.client import SESSION
from tests.conformance.provider import PATIENCE, Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import HANG, Drip, Hold

pytestmark = pytest.mark.about("the server")

GRACE = 1
LONG = 600  # far more than a test waits: whoever ends before did not need it


@pytest.fixture
def server(fleet: Fleet) -> Iterator[Server]:
    server = fleet.fresh(SHUTDOWN_GRACE_SECONDS=LONG)
    yield server
    server.stop()


@pytest.fixture
def brief(fleet: Fleet) -> Iterator[Server]:
    """A server that gives its turns a second to finish."""
    server = fleet.fresh(SHUTDOWN_GRACE_SECONDS=GRACE)
    yield server
    server.stop()


def drained(server: Server) -> None:
    """Wait until it refuses new turns."""
    deadline = time.monotonic() + PATIENCE
    while (reply := server.post({"prompt": "Still there?"})).status != 503:
        assert time.monotonic() < deadline, reply


SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


@pytest.mark.parametrize("number", SIGNALS, ids=["SIGTERM", "SIGINT", "SIGHUP"])
def test_an_idle_server_ends_at_once(
    server: Server, provider: Provider, number: signal.Signals
) -> None:
    Chat(server, provider).say("Hello.")
    server.send(None, method="GET", path="/ping").reply(keep=True)  # an idle connection stays open
    with socket.create_connection(server.address):  # and one that never said a word
        server.signal(number)
        assert server.exit_code() == 0
    assert "Traceback" not in server.log


def test_a_running_turn_finishes_while_new_ones_are_refused(
    server: Server, provider: Provider, gate: threading.Event
) -> None:
    chat, late = Chat(server, provider), Chat(server, provider)
    running = chat.start("Hello.", ["Good ", Hold(gate), "bye."])
    assert running.event() == ("message", "Good ")
    kept = server.send(None, method="GET", path="/ping")
    assert "X-Draining" not in kept.reply(keep=True).headers
    server.signal()
    drained(server)
    assert kept.socket.recv(1) == b"", "the next request of this client reaches a replica"
    refused = late.say("Hello.")
    assert_failed(refused, 503, "draining", late.session)
    assert refused.headers["Retry-After"] == "1"
    assert_failed(late.end(), 503, "draining", late.session)
    ping = server.get("/ping")
    assert (ping.status, ping.json["status"]) == (200, "HealthyBusy")
    assert ping.headers["X-Draining"] == "1"
    foreign = {SESSION: "no good", "Origin": "https://attacker.example"}
    assert server.post(b"{", foreign).error == "origin_forbidden"
    # Of many clients, this one reads no reply before it has sent the body.
    client = http.client.HTTPConnection(*server.address)
    client.request("POST", "/invocations", b"{" * 5_000_000, {SESSION: "no good"})
    assert json.load(client.getresponse())["error"]["type"] == "draining"
    client.close()
    gate.set()
    reply = running.reply()
    assert reply.events[0] == ("message", "bye.")
    assert reply.turn == 1
    assert server.exit_code() == 0
    assert late.calls("Hello.") == []


def test_a_signal_that_arrives_twice_is_one_signal(
    server: Server, provider: Provider, gate: threading.Event
) -> None:
    running = Chat(server, provider).start("Hello.", ["Good ", Hold(gate), "bye."])
    assert running.event() == ("message", "Good ")
    server.signal()
    server.signal()
    drained(server)
    gate.set()
    assert running.reply().turn == 1
    assert server.exit_code() == 0


@pytest.mark.slow
def test_a_signal_after_a_second_ends_the_server(
    server: Server, provider: Provider, gate: threading.Event
) -> None:
    running = Chat(server, provider).start("Hello.", ["Good ", Hold(gate), "bye."])
    assert running.event() == ("message", "Good ")
    server.signal()
    drained(server)
    time.sleep(1.1)
    server.signal()
    assert server.exit_code() == 1


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["starts", pytest.param("serves", marks=pytest.mark.full)])
def test_a_server_ends_with_the_parent_that_reloads_it(
    fleet: Fleet, tmp_path: Path, moment: str
) -> None:
    target, server = fleet.target, fleet.shared()  # whose folder and variables it has as well
    log = tmp_path / "log.txt"
    with log.open("wb") as output:
        parent = subprocess.Popen(
            [*target.command(target.project()), "--reload"],
            cwd=server.folder,
            env=server.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    deadline = time.monotonic() + PATIENCE
    while not (child := children.read_text().split()[:1]) or (
        moment == "serves" and b"Listening on" not in log.read_bytes()
    ):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    with suppress(FileNotFoundError, ProcessLookupError):
        while "State:\tZ" not in Path(f"/proc/{child[0]}/status").read_text():
            assert time.monotonic() < deadline, "the child still runs"
            time.sleep(0.1)


@pytest.mark.slow
def test_a_turn_that_does_not_finish_is_ended_with_the_grace_time(
    brief: Server, provider: Provider, gate: threading.Event
) -> None:
    server = brief
    hung, slow, quick = (Chat(server, provider) for _ in range(3))
    silent = hung.start("Hello.", [HANG])
    talking = slow.start("Hello.", [Drip(100_000, 20)])
    short = quick.start("Hello.", ["Good ", Hold(gate), "bye."])
    for chat in (hung, slow, quick):
        chat.call("Hello.")
    waiting = hung.start("Me too.")
    server.settle()
    started = time.monotonic()
    server.signal()
    drained(server)
    gate.set()
    assert_done(short.reply(), ["Good ", "bye."], 1, quick.session)
    hung.gone("Hello.")
    slow.gone("Hello.")
    assert server.exit_code() == 0
    assert time.monotonic() - started > GRACE * 0.8
    for exchange in (silent, talking, waiting):
        with suppress(OSError):  # a closed connection says as much
            assert b"event: done" not in exchange.reply().body
    assert hung.calls("Me too.") == []
    cut = [line for line in server.log.splitlines() if "outcome=draining" in line]
    assert all(" WARNING session " in line for line in cut)
    for chat in (hung, slow):
        assert any(chat.session in line for line in cut)
    assert "outcome=cancelled" not in server.log
