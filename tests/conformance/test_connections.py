"""What a client may send, and how long it may take: REQUEST_TIMEOUT_SECONDS and the parser."""

import json
import statistics
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.chat import Chat, assert_done, assert_failed
from tests.conformance.client import JSON, SESSION, Exchange
from tests.conformance.provider import PATIENCE, Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import HANG, Drip, Hold

pytestmark = pytest.mark.about("the server")

HEAD = b"POST /invocations HTTP/1.1\r\nHost: 127.0.0.1\r\n"
PING = b"GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HALF_BODY = HEAD + b'Content-Length: 100\r\n\r\n{"prompt": '
HALF_CHUNK = HEAD + b'Transfer-Encoding: chunked\r\n\r\n40\r\n{"prompt": '
# The bytes that the system keeps at most of what a server sends and nobody reads.
MOST_IN_FLIGHT = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])


@pytest.fixture
def impatient(fleet: Fleet) -> Server:
    """A server whose clients have a second for each request."""
    return fleet.shared(REQUEST_TIMEOUT_SECONDS=1)


def sent(server: Server, data: bytes) -> Exchange:
    exchange = Exchange(server.address)
    exchange.socket.settimeout(PATIENCE / 2)  # it was for ever
    exchange.write(data)
    return exchange


def rest_of(exchange: Exchange) -> bytes:
    """What comes until the server closes the connection."""
    data = b""
    with suppress(ConnectionResetError):
        while more := exchange.socket.recv(65536):
            data += more
    return data


def assert_refused(exchange: Exchange, status: int, error: str) -> None:
    """The request got this answer, and the server closes the connection."""
    reply = exchange.reply(keep=True)
    assert_failed(reply, status, error, None)
    assert reply.headers["Connection"] == "close"
    age = time.time() - parsedate_to_datetime(reply.headers["Date"]).timestamp()
    assert -1 < age < 60
    assert rest_of(exchange) == b""
    exchange.leave()


SLOW = {"nothing": b"", "half a head": HEAD, "half a body": HALF_BODY, "half a chunk": HALF_CHUNK}


@pytest.mark.parametrize("what", SLOW)
def test_a_client_that_stops_sending_gets_408(impatient: Server, what: str) -> None:
    assert_refused(sent(impatient, SLOW[what]), 408, "request_timeout")


@pytest.mark.parametrize(
    ("begin", "more"), [(HEAD, b"X-More: 1\r\n"), (HALF_BODY, b" ")], ids=["head", "body"]
)
def test_a_client_that_sends_too_slowly_gets_408(
    impatient: Server, begin: bytes, more: bytes
) -> None:
    exchange, deadline = sent(impatient, begin), time.monotonic() + PATIENCE / 2
    while not exchange.answered(within=0.2):
        assert time.monotonic() < deadline, "it goes on for ever"
        exchange.write(more)
    assert_refused(exchange, 408, "request_timeout")


def test_an_idle_connection_is_closed_without_a_word(impatient: Server) -> None:
    exchange = Exchange(impatient.address)
    exchange.send("GET", "/ping")
    assert exchange.reply(keep=True).status == 200
    assert rest_of(exchange) == b""


def test_a_connection_of_which_only_the_end_of_a_line_comes_is_closed(impatient: Server) -> None:
    exchange = Exchange(impatient.address)
    exchange.send("GET", "/ping")
    assert exchange.reply(keep=True).status == 200
    exchange.socket.settimeout(PATIENCE / 2)
    exchange.write(b"\r\n")
    rest_of(exchange)


@pytest.mark.slow
def test_a_turn_may_take_longer_than_its_request(impatient: Server, chat: Chat) -> None:
    patient = Chat(impatient, chat.provider)
    reply = patient.say("Hello.", [Drip(60, 50)])
    assert_done(reply, ["."] * 60, turn=1, session=patient.session)
    reply = patient.say("Again.", [Drip(60, 50)], headers=JSON)
    assert reply.turn == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        pytest.param(b"GARBAGE\r\n\r\n", id="garbage"),
        pytest.param(b"\0" * 100_000, id="much garbage", marks=pytest.mark.full),
        pytest.param(HEAD, id="half a head"),
        pytest.param(HALF_BODY, id="half a body"),
    ],
)
def test_bytes_after_a_request_are_not_answered_in_its_response(
    impatient: Server, provider: Provider, gate: threading.Event, more: bytes
) -> None:
    chat = Chat(impatient, provider)
    exchange = chat.start("One.", ["Well, ", Hold(gate), "done."])
    exchange.socket.settimeout(PATIENCE / 2)
    assert exchange.answered(within=PATIENCE)
    exchange.write(more)
    time.sleep(2.5)  # more than REQUEST_TIMEOUT_SECONDS, and both servers look each second
    gate.set()
    _, first, *others = rest_of(exchange).split(b"HTTP/1.1 ")
    exchange.leave()
    assert first.endswith(b"0\r\n\r\n")
    assert len(others) <= 1


@pytest.mark.slow
@pytest.mark.rows(where=lambda row: not row["target"].store)
def test_idle_connections_do_not_stop_the_server(
    fleet: Fleet, provider: Provider, gate: threading.Event
) -> None:
    few = 'ulimit -n 256; exec "$@"'
    target = replace(
        fleet.target,
        command=lambda project: ["sh", "-c", few, "sh", *fleet.target.command(project)],
        start=subprocess.Popen,
    )
    server = Server(target, fleet.folder, fleet.provider, {})
    chat = Chat(server, provider)
    try:
        running = chat.start("Meanwhile.", ["Well, ", Hold(gate), "done."])
        assert running.event() == ("message", "Well, ")
        kinds = list(SLOW.values())
        held = [sent(server, kinds[number % len(kinds)]) for number in range(300)]
        assert pinged(server, within=5), "it answers when the others have had their time"
        gate.set()
        assert running.reply().turn == 1
        assert rest_of(held[0]) == b"", "it was idle for the longest time"
        assert len(server.log) < 10_000
        for exchange in held:
            exchange.leave()
    finally:
        server.stop()


def pinged(server: Server, within: float) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError):
            exchange = Exchange(server.address)
            exchange.socket.settimeout(1)
            exchange.send("GET", "/ping")
            return exchange.reply().status == 200
        time.sleep(0.1)
    return False


def is_sample(name: str, params: Mapping[str, Any]) -> bool:
    """The usual run waits once for a client that reads nothing."""
    is_node = params["target"].is_node
    return name != "test_a_client_that_reads_no_answer_keeps_no_place" or bool(is_node)


@pytest.mark.full
@pytest.mark.slow
def test_a_client_that_reads_no_answer_keeps_no_place(fleet: Fleet) -> None:
    server = fleet.fresh(offline=True, MAX_TURNS=1, REQUEST_TIMEOUT_SECONDS=4)
    deaf = Exchange(server.address, receive_buffer=2048)
    before = -1
    while (held := in_flight(deaf)) != before:  # until no answer leaves the server any more
        before, is_far_from_it = held, held < 0.4 * MOST_IN_FLIGHT
        deaf.write(PING * (400 if is_far_from_it else 100))
        time.sleep(0.3)
    deaf.write(HALF_BODY)
    server.settle()
    assert server.post({"prompt": "Is there room?"}).error == "server_busy"
    deadline = time.monotonic() + PATIENCE / 2
    while server.post({"prompt": "And now?"}).status != 200:
        assert time.monotonic() < deadline, "its place is never free again"
        time.sleep(0.2)
    deaf.leave()


def in_flight(exchange: Exchange) -> int:
    """The bytes that the system holds of what was sent to a client and not read by it."""
    port = f":{exchange.socket.getsockname()[1]:04X}"
    fields = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    queues = [entry[4].split(":") for entry in fields if port in (entry[1][-5:], entry[2][-5:])]
    return sum(int(queue, 16) for pair in queues for queue in pair)


def test_a_kept_connection_is_as_fast_as_a_fresh_one(fleet: Fleet) -> None:
    server = fleet.shared(offline=True)
    kept: Exchange | None = Exchange(server.address)
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(15):
        for is_kept in times:
            began = time.monotonic()
            exchange = kept if is_kept and kept else Exchange(server.address)
            exchange.send("POST", "/invocations", JSON, {"prompt": "Hello."})
            assert exchange.reply(keep=is_kept).status == 200
            times[is_kept].append(time.monotonic() - began)
    # What is waited for is a delayed ACK, of 40 ms; a turn takes a tenth of that.
    assert statistics.median(times[True]) < statistics.median(times[False]) + 0.02


BODY = b'{"prompt": "Hello."}'
SIZE = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
REFUSED = {
    "length and chunks": HEAD + SIZE + CHUNKED + b"\r\n" + CHUNKS,
    "chunks and length": HEAD + CHUNKED + SIZE + b"\r\n" + CHUNKS,
    "two lengths": HEAD + SIZE + SIZE + b"\r\n" + BODY,
    "bare line feeds": (HEAD + SIZE + b"\r\n").replace(b"\r\n", b"\n") + BODY,
    "one bare line feed": HEAD + b"X-Other: 1\n" + SIZE + b"\r\n" + BODY,
    "a bare line feed in a chunk": HEAD + CHUNKED + b"\r\n" + CHUNKS.replace(b"\r\n", b"\n", 1),
    "a bare line feed at the end": HEAD + CHUNKED + b"\r\n" + CHUNKS[:-2] + b"\n",
    "large extensions of a chunk": HEAD + CHUNKED + b"\r\n1;" + b"a" * 20_000,
    "a folded header": HEAD + b"X-Other: 1\r\n 2\r\n" + SIZE + b"\r\n" + BODY,
    "version 1.2": HEAD.replace(b"1.1", b"1.2") + SIZE + b"\r\n" + BODY,
    "version 3.0": HEAD.replace(b"1.1", b"3.0") + SIZE + b"\r\n" + BODY,
    "a tunnel": b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_request_that_others_may_read_differently_is_refused(server: Server, what: str) -> None:
    assert_refused(sent(server, REFUSED[what]), 400, "invalid_request")


LARGE = {
    "a large header": HEAD + SIZE + b"X-Other: " + b"x" * 20_000 + b"\r\n\r\n" + BODY,
    "an endless header": HEAD + SIZE + b"X-Other: " + b"x" * 20_000,
    "many headers": HEAD + SIZE + b"X-Other: 1234567890\r\n" * 1_000 + b"\r\n" + BODY,
    "a long path": b"GET /" + b"x" * 20_000,
    "a whole head with a long query": HEAD.replace(b" HTTP", b"?" + b"x" * 20_000 + b" HTTP")
    + SIZE
    + b"\r\n"
    + BODY,
    "large trailers": HEAD + CHUNKED + b"\r\n" + CHUNKS[:-2] + b"X-Other: 1234567890\r\n" * 1_000,
}


@pytest.mark.parametrize("what", LARGE)
def test_a_head_above_the_limit_gets_431(server: Server, what: str) -> None:
    assert_refused(sent(server, LARGE[what]), 431, "head_too_large")


def test_a_client_may_wait_for_100_and_other_expectations_are_ignored(server: Server) -> None:
    exchange = sent(server, HEAD + b"Expect: 100-continue\r\n" + SIZE + b"\r\n")
    expected = b"HTTP/1.1 100 Continue\r\n\r\n"
    received = b""
    while len(received) < len(expected):
        received += exchange.socket.recv(len(expected) - len(received))
    assert received == expected
    exchange.write(BODY)
    assert exchange.reply().status == 200
    other = HEAD + b"Expect: something\r\n" + SIZE + b"\r\n" + BODY
    assert sent(server, other).reply().status == 200


HOSTS = {
    "two": HEAD + b"Host: 127.0.0.1\r\n" + SIZE + b"\r\n" + BODY,
    "none": HEAD.replace(b"Host: 127.0.0.1\r\n", b"") + SIZE + b"\r\n" + BODY,
}


@pytest.mark.parametrize("what", HOSTS)
def test_a_request_has_one_host(server: Server, what: str) -> None:
    reply = sent(server, HOSTS[what]).reply()
    assert_failed(reply, 400, "invalid_request", reply.session)


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


@pytest.mark.parametrize("cut", [0, 40, len(HEAD + UPGRADE) + 30])
def test_a_wish_for_another_protocol_is_not_heeded(server: Server, cut: int) -> None:
    """Java's HttpClient and `curl --http2` send it with each request to http://."""
    request = HEAD + UPGRADE + b"Accept: application/json\r\n" + SIZE + b"\r\n" + BODY
    exchange = sent(server, request[:cut])
    for data in (request[cut:], request):
        server.settle()
        exchange.write(data)
        assert exchange.reply(keep=True).text == "You said: Hello."
    exchange.write(b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    rest_of(exchange)


def test_a_client_that_leaves_in_its_body_is_a_line_of_the_log_or_none(chat: Chat) -> None:
    chat.server.settle()
    before = len(chat.server.log.splitlines())
    for data in (HALF_BODY, HALF_CHUNK) * 3:
        exchange = sent(chat.server, data)
        chat.server.settle()
        exchange.leave()
    chat.server.settle()
    time.sleep(0.2)  # the log comes through a pipe
    assert len(chat.server.log.splitlines()) - before <= 6


def test_a_client_that_leaves_in_its_reply_leaves_no_traceback(chat: Chat) -> None:
    for number in range(5):
        exchange = chat.start(f"Hello {number}.", ["Well, ", HANG])
        exchange.event()
        exchange.leave()
        chat.gone(f"Hello {number}.")
    chat.server.settle()
    assert "Traceback" not in chat.server.log
    assert "detach context" not in chat.server.log


def test_a_client_of_http_1_0_gets_a_stream_without_chunks(
    chat: Chat, gate: threading.Event
) -> None:
    prompt = f"Hello.{chat.tag}"
    chat.provider.script(prompt, ["First. ", Hold(gate), "Second."])
    body = json.dumps({"prompt": prompt}).encode()
    head = HEAD.replace(b"1.1", b"1.0") + f"{SESSION}: {chat.session}\r\n".encode()
    exchange = sent(chat.server, head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert "Transfer-Encoding" not in exchange.head().headers
    assert exchange.event() == ("message", "First. ")  # before the end of the reply
    gate.set()
    reply = exchange.reply()
    assert reply.events == [
        ("message", "Second."),
        ("done", {"session_id": chat.session, "turn": 1, "model": "test-model"}),
    ]
    accept = b"Accept: application/json\r\n"
    again = sent(chat.server, head + accept + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert again.reply().json["turn"] == 2


def test_a_health_check_needs_no_host_in_http_1_0(chat: Chat) -> None:
    for method in (b"GET", b"HEAD"):
        reply = sent(chat.server, method + b" /ping HTTP/1.0\r\n\r\n").reply()
        assert (reply.status, reply.content_type) == (200, "application/json")
    for request in (b"GET /ping HTTP/1.1\r\n", b"POST /invocations HTTP/1.0\r\n"):
        assert sent(chat.server, request + b"Content-Length: 0\r\n\r\n").reply().status == 400
    two = b"GET /ping HTTP/1.0\r\nHost: localhost\r\nHost: localhost\r\n\r\n"
    assert sent(chat.server, two).reply().status == 400
    foreign = b"GET /ping HTTP/1.0\r\nHost: www.example.com\r\n\r\n"
    assert sent(chat.server, foreign).reply().status == 403
