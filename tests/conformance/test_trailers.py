"""What may stand in a request besides its head and its body decides nothing, and has an end."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import repeat
from pathlib import Path

import pytest

from tests.conformance.chat import Chat
from tests.conformance.client import ACTOR, CUSTOM_KEY, JSON, KEY, SESSION, USER, Exchange, Reply
from tests.conformance.provider import PATIENCE, Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import Hold
from tests.conformance.targets import Target
from tests.stores.servers import wait_for

pytestmark = pytest.mark.about("the server")

TOKEN = "the-token-of-the-owner"
SECRET = "Alice's number is opensesame."
MOST_BYTES = 4_000_000  # what a system may hold of a request that nobody reads


@pytest.fixture
def server(fleet: Fleet) -> Server:
    return fleet.shared(offline=True)


@pytest.fixture
def alice(server: Server) -> str:
    """A session of Alice in which she has said something."""
    session = f"alice-{time.monotonic_ns()}"
    headers = {**JSON, SESSION: session, USER: "alice", KEY: "the-key-of-alice"}
    assert server.post({"prompt": SECRET}, headers).turn == 1
    return session


def with_trailers(
    server: Server, headers: dict[str, str], trailers: dict[str, str], is_apart: bool
) -> Reply:
    """Send a prompt in chunks, with trailers, in one packet or after the head."""
    exchange = Exchange(server.address)
    lines = {"Host": exchange.host, **JSON, **headers, "Transfer-Encoding": "chunked"}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    body = b'{"prompt": "What do you know?"}'
    end = "".join(f"{name}: {value}\r\n" for name, value in trailers.items())
    parts = [f"POST /invocations HTTP/1.1\r\n{head}\r\n".encode()]
    parts += [b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(body), body, end.encode())]
    for part in parts if is_apart else [b"".join(parts)]:
        exchange.write(part)
        time.sleep(0.05 * is_apart)
    return exchange.reply()


@pytest.mark.parametrize("is_apart", [False, True], ids=["in one packet", "after the head"])
@pytest.mark.parametrize("name", [USER, ACTOR])
def test_a_trailer_names_no_actor(server: Server, alice: str, name: str, is_apart: bool) -> None:
    reply = with_trailers(server, {SESSION: alice, ACTOR: "bob"}, {name: "alice"}, is_apart)
    assert reply.error == "session_forbidden"
    reply = with_trailers(server, {SESSION: alice}, {name: "alice"}, is_apart)
    assert reply.error == "session_forbidden"
    reply = with_trailers(server, {ACTOR: "bob"}, {SESSION: alice, name: "alice"}, is_apart)
    assert reply.turn == 1
    assert reply.session != alice
    assert "opensesame" not in reply.text


@pytest.mark.parametrize("name", [KEY, CUSTOM_KEY])
def test_a_trailer_is_no_idempotency_key(server: Server, alice: str, name: str) -> None:
    who = {SESSION: alice, USER: "alice"}
    assert with_trailers(server, who, {name: "the-key-of-alice"}, False).turn == 2


def test_a_trailer_is_no_token(fleet: Fleet) -> None:
    server = fleet.fresh(offline=True, API_TOKEN=TOKEN)
    token = {"Authorization": f"Bearer {TOKEN}"}
    assert with_trailers(server, {}, token, False).error == "unauthorized"
    assert with_trailers(server, token, {"Authorization": "Bearer x"}, False).turn == 1


def test_a_trailer_is_no_other_header(server: Server) -> None:
    trailers = {"Host": "attacker.example", "Origin": "https://attacker.example", SESSION: "?"}
    trailers |= {"Content-Type": "text/plain", "Accept": "text/event-stream"}
    reply = with_trailers(server, {}, trailers, False)
    assert reply.turn == 1
    assert reply.content_type == "application/json"


def head(server: Server, line: bytes) -> bytes:
    host = b"%s:%d" % (server.address[0].encode(), server.address[1])
    return line + b" HTTP/1.1\r\nHost: " + host + b"\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(params=[b"POST /invocations", b"GET /ping"], ids=["a turn", "a ping"])
def begin(request: pytest.FixtureRequest, server: Server) -> bytes:
    return head(server, request.param)


ENDLESS = {
    "trailers": (b"0\r\n", b"a:1\r\n" * 4000),
    "one trailer": (b"0\r\na: ", b"1" * 20_000),
    "the name of a trailer": (b"0\r\n", b"a" * 20_000),
    "extensions of a chunk": (b"1;", b"a" * 20_000),
    "extensions of chunks": (b"", (b"1;" + b"a" * 4000 + b"\r\n \r\n") * 5),
    "the size of a chunk": (b"", b"0" * 20_000),
}


# Node's parser forgets these at once, so that only the time of a request ends them.
FORGOTTEN = {"extensions of chunks", "the size of a chunk"}


@pytest.mark.parametrize("what", ENDLESS)
def test_other_parts_of_a_request_have_a_limit(
    server: Server, target: Target, begin: bytes, what: str
) -> None:
    first, more = ENDLESS[what]
    is_forgotten = target.is_node and what in FORGOTTEN
    assert (sent(server, begin + first, repeat(more)) < MOST_BYTES) is not is_forgotten
    assert server.get("/ping").status == 200


def test_messages_after_a_running_turn_are_not_stored(
    fleet: Fleet, provider: Provider, gate: threading.Event
) -> None:
    chat = Chat(fleet.fresh(), provider)
    exchange = chat.start("One.", ["Well, ", Hold(gate), "done."])
    assert exchange.answered(within=PATIENCE)
    before = megabytes(chat.server)
    exchange.write(b"GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Other: ")
    exchange.socket.settimeout(1)
    with suppress(ConnectionResetError, BrokenPipeError, TimeoutError):
        for _ in range(2000):
            exchange.socket.sendall(b"x" * 20_000)
    assert megabytes(chat.server) - before < 20
    gate.set()
    exchange.leave()


MORE = {"bad bytes": b"\x00\x01 bad\r\n\r\n", "a part of a line": b"GET /ping HT"}


@pytest.mark.parametrize("more", MORE)
def test_a_client_that_leaves_after_more_bytes_ends_its_turn(
    fleet: Fleet, provider: Provider, gate: threading.Event, more: str
) -> None:
    chat = Chat(fleet.fresh(), provider)
    exchange = chat.start("One.", ["Well, ", Hold(gate), "done."], headers=JSON)
    chat.call("One.")
    exchange.write(MORE[more])
    exchange.leave()
    wait_for("the end of the turn", lambda: "outcome=cancelled" in chat.server.log)
    gate.set()
    chat.server.settle()
    assert chat.recalled() == []


def megabytes(server: Server) -> float:
    """What a process holds in memory."""
    status = Path(f"/proc/{server._process.pid}/status").read_text()
    (line,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
    return int(line) / 1024


def test_trailers_that_come_at_once_have_an_end(server: Server, begin: bytes) -> None:
    exchange = Exchange(server.address)
    exchange.write(begin + b"0\r\n" + b"a:1\r\n" * 4000 + b"\r\n")
    exchange.socket.settimeout(10)  # an idle connection is closed after 30 seconds
    with suppress(ConnectionResetError):
        while exchange.socket.recv(65536):
            pass


def sent(server: Server, begin: bytes, more: Iterator[bytes]) -> int:
    """How many bytes go to the server before it closes the connection."""
    exchange = Exchange(server.address)
    exchange.socket.settimeout(PATIENCE / 2)
    exchange.write(begin)
    count = 0
    with suppress(ConnectionResetError, BrokenPipeError):
        for data in more:
            exchange.socket.sendall(data)
            count += len(data)
            if count >= MOST_BYTES:
                break
    return count


def test_a_body_in_small_chunks_is_read(server: Server) -> None:
    text = "x" * 50_000
    body = ('{"prompt": "' + text + '"}').encode()
    reply = server.send(iter([bytes([byte]) for byte in body]), JSON).reply()
    assert text in reply.text


def test_many_wishes_for_another_protocol_are_not_heeded(server: Server, target: Target) -> None:
    wish = b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    request = b"GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\n" + wish
    exchange = Exchange(server.address)
    exchange.socket.settimeout(PATIENCE / 2)
    exchange.write(request * 1500)
    answers = b""
    many = 1 if target.is_node else 1500  # its parser skips what comes with such a request
    while answers.count(b'"Healthy"') < many:
        more = exchange.socket.recv(65536)
        assert more, "it closed the connection"
        answers += more
    exchange.leave()
