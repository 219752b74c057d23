"""Two thousand mutated requests: each is answered below 500, and nothing of them is left."""

import json
import random
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.client import ACTOR, CUSTOM_KEY, JSON, KEY, SESSION, USER, Exchange
from tests.conformance.provider import PATIENCE
from tests.conformance.server import Fleet, Server

pytestmark = [pytest.mark.about("the server"), pytest.mark.slow]

SEED = 12
REQUESTS = 2000
AT_ONCE = 700
MOST_POOLED = 30  # connections of a store's client: one for each session that works at once
MOST_MEGABYTES = 150  # more than before, of which Node frees what it must
OWNED = "session-of-somebody-else"

METHODS = ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "PO\0ST", "X"]
PATHS = ["/ping", "/", "", "*", "//invocations", "/invocations/", "/invocations?a=%zz&b=\xff"]
PATHS += ["/invocations#a", "/%69nvocations", "http://127.0.0.1/invocations", "http://[/", "/\0"]
PATHS += ["/" + "a" * 9000, "/../ping", "invocations", "/ping /ping", "?", "/invocations\\"]
NAMES = [SESSION, USER, ACTOR, KEY, CUSTOM_KEY, "Host", "Origin", "Accept", "Expect", "Upgrade"]
NAMES += ["Connection", "Content-Length", "Transfer-Encoding", "Content-Type", "Authorization"]
NAMES += ["Content-Encoding", "Access-Control-Request-Method", "HTTP2-Settings", "\xe9", "", "a b"]
VALUES = ["", " ", "\t", "0", "-1", "+7", "0x10", "1e3", "9" * 25, "null", "\xe9\xff", "a\1b", "\0"]
VALUES += ["a" * 9000, "a" * 17_000, ",", ";q=", "chunked", "gzip, chunked", "identity", "close"]
VALUES += ["keep-alive, Upgrade", "h2c", "websocket", "100-continue", "text/event-stream", "*/*"]
VALUES += ["application/json", "a/b;" * 500, "localhost", "127.0.0.1:1", "[::1]", "https://a.b"]
VALUES += [OWNED, "robin", "robin:" * 50, "../../etc", "__proto__", "constructor", "Bearer \x7f"]
TEXTS = ["Hello.", "use word_count: a b", "use word_count: " + "a " * 5000, "use none: a", " ", ""]
TEXTS += ["\ud800", "\0", "\u2028\ufeff", "x" * 100_001, "data: a\n\nevent: done", "__proto__"]
ODD: list[Any] = [None, True, False, 0, -1, 1e308, 10**400, [], {}, [[]]]
ODD += [{"__proto__": {"prompt": "a"}}]
RAW = [b"", b"{", b"null", b"NaN", b"\xef\xbb\xbf{}", b"\xff\xfe", b'{"a": "\xc3"}', b'"\\ud800"']
RAW += [b"[" * 100_000, b'{"prompt": "a", "prompt": "b"}', b'{"prompt": "a"} x', b"1" * 5000]
RAW += [b'{"a":' * 70 + b"1" + b"}" * 70, b"\0" * 100, b'{"prompt": "a"}' + b" " * 1_050_000]
SIZES = [
    b"-1",
    b"g",
    b"",
    b"0x5",
    b"5;a=b",
    b"5;" + b"a" * 20_000,
    b"f" * 17,
    b" 5",
    b"5\n",
    b"0005",
]

HEAD = re.compile(rb"HTTP/1\.1 (\d{3}) [A-Za-z -]+\r\n((?:[\w-]+: [^\r\n]*\r\n)*)\r\n")
SIZE = re.compile(rb"(?i)^content-length: (\d+)\r$", re.MULTILINE)
CHUNK = re.compile(rb"([0-9a-fA-F]+)\r\n")
# Method, path, headers, the headers that frame the body, and the body.
Request = tuple[str, str, list[tuple[str, str]], bytes, bytes]


def test_no_request_breaks_a_server(fleet: Fleet) -> None:
    chaos = random.Random(SEED)
    limits = {"MAX_TURNS": 10_000, "SESSION_QUEUE": 10_000}
    server = fleet.fresh(offline=True, REQUEST_TIMEOUT_SECONDS=1, **limits)
    owner = {**JSON, SESSION: OWNED, ACTOR: "the-owner", KEY: "first"}
    before = server.post({"prompt": "What is mine?"}, owner)
    assert before.turn == 1
    talk(server, [mutated(chaos) for _ in range(REQUESTS // 10)])
    files, megabytes = used(server)
    talk(server, [mutated(chaos) for _ in range(REQUESTS)])
    most_files = files + (MOST_POOLED if fleet.target.store else 0)
    deadline = time.monotonic() + PATIENCE
    while used(server)[0] > most_files and time.monotonic() < deadline:
        time.sleep(0.05)
    more_files, more_megabytes = used(server)
    print(f"{fleet.target.name}: {files} files, {megabytes:.0f} MB;")
    print(f"then {more_files} files, {more_megabytes:.0f} MB")
    assert more_files <= most_files
    assert more_megabytes - megabytes < MOST_MEGABYTES
    again = server.post({"prompt": "What is mine?"}, owner)
    assert again.json["reply"] == before.json["reply"]
    after = server.post({"prompt": "Is it still?"}, {**owner, KEY: "second"})
    assert after.turn == 2
    assert after.text.count("you said") == 2
    assert 'Earlier you said: "What is mine?"' in after.text
    assert server.get("/ping").json["status"] == "Healthy"
    for trace in ("Traceback", " ERROR ", "\n    at ", "Unhandled", 'File "'):
        assert trace not in server.log


def used(server: Server) -> tuple[int, float]:
    """The open descriptors and the megabytes of a process."""
    process = Path(f"/proc/{server._process.pid}")
    (line,) = re.findall(r"VmRSS:\s+(\d+) kB", (process / "status").read_text())
    return len(list((process / "fd").iterdir())), int(line) / 1024


def mutated(chaos: random.Random) -> bytes:
    """A valid request, or a few of them, with one mistake or some."""
    requests = [valid(chaos) for _ in range(chaos.choice([1, 1, 1, 1, 2, 3]))]
    which = chaos.randrange(len(requests))
    for _ in range(chaos.choice([1, 1, 2, 3])):
        requests[which] = chaos.choice(MUTATIONS)(chaos, requests[which])
    data = b"".join(map(rendered, requests))
    for _ in range(chaos.choice([0, 0, 0, 1, 4])):
        data = chaos.choice(NOISE)(chaos, data)
    return data


def valid(chaos: random.Random) -> Request:
    headers = [("Host", "127.0.0.1"), ("Content-Type", "application/json")]
    session, who = f"session-{chaos.randrange(20)}", f"robin-{chaos.randrange(3)}"
    headers += chaos.sample([(SESSION, session), (ACTOR, who), (KEY, f"key-{who}")], 3)
    headers += [("Accept", chaos.choice(["application/json", "text/event-stream"]))]
    headers += [("Connection", "close")] if chaos.random() < 0.8 else []
    text = chaos.choice(TEXTS) if chaos.random() < 0.3 else "Hello."
    value = {"end_session": True} if chaos.random() < 0.1 else {"prompt": text}
    return "POST", "/invocations", headers, *framed(json.dumps(value).encode())


def framed(body: bytes) -> tuple[bytes, bytes]:
    return b"Content-Length: %d\r\n" % len(body), body


def chunked(body: bytes, size: bytes) -> tuple[bytes, bytes]:
    return b"Transfer-Encoding: chunked\r\n", size + b"\r\n" + body + b"\r\n0\r\n\r\n"


def rendered(request: Request) -> bytes:
    method, path, headers, frame, body = request
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"{method} {path} HTTP/1.1\r\n{lines}".encode("latin-1") + frame + b"\r\n" + body


def other_method(chaos: random.Random, request: Request) -> Request:
    return chaos.choice(METHODS), *request[1:]


def other_path(chaos: random.Random, request: Request) -> Request:
    return request[0], chaos.choice(PATHS), *request[2:]


def other_headers(chaos: random.Random, request: Request) -> Request:
    method, path, headers, frame, body = request
    changed, place = [*headers], chaos.randrange(len(headers) or 1)
    match chaos.choice(["drop", "double", "value", "name", "add", "many", "shuffle"]):
        case "drop":
            del changed[place : place + 1]
        case "double":
            changed += changed[place : place + 1]
        case "value":
            changed[place : place + 1] = [(changed[place][0], chaos.choice(VALUES))]
        case "name":
            changed[place : place + 1] = [(chaos.choice(NAMES), changed[place][1])]
        case "add":
            changed.insert(place, (chaos.choice(NAMES), chaos.choice(VALUES)))
        case "many":
            changed += [(f"X-{number}", "a") for number in range(chaos.choice([90, 2000]))]
        case "shuffle":
            chaos.shuffle(changed)
    return method, path, changed or headers, frame, body


def other_json(chaos: random.Random, request: Request) -> Request:
    value = {"prompt": chaos.choice([*TEXTS, *ODD]), chaos.choice(NAMES): chaos.choice(ODD)}
    if chaos.random() < 0.5:
        value["end_session"] = chaos.choice([*ODD, True])
    body = json.dumps(chaos.choice([value, *ODD])).encode()
    return *request[:3], *framed(body)


def other_body(chaos: random.Random, request: Request) -> Request:
    return *request[:3], *framed(chaos.choice(RAW))


def other_length(chaos: random.Random, request: Request) -> Request:
    length = chaos.choice([0, 1, len(request[4]) - 1, len(request[4]) + 9, 2**31, 2**63, 10**19])
    return *request[:3], b"Content-Length: %d\r\n" % length, request[4]


def broken_chunks(chaos: random.Random, request: Request) -> Request:
    body = request[4]
    size = chaos.choice([*SIZES, b"%x" % len(body), b"%x" % (len(body) + chaos.randint(-3, 3))])
    frame, data = chunked(body, size)
    trailer = chaos.choice([b"", b"", b"X-More: 1\r\n", b"Content-Length: 5\r\n", b"a" * 20_000])
    return *request[:3], frame, data[:-2] + trailer + data[-2:]


MUTATIONS: list[Callable[[random.Random, Request], Request]] = [
    *(other_method, other_path, other_headers, other_headers, other_json),
    *(other_body, other_length, broken_chunks),
]


def flipped(chaos: random.Random, data: bytes) -> bytes:
    place = chaos.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << chaos.randrange(8)]) + data[place + 1 :]


def cut(chaos: random.Random, data: bytes) -> bytes:
    return data[: chaos.randint(1, len(data))]


def dropped(chaos: random.Random, data: bytes) -> bytes:
    place = chaos.randrange(len(data))
    return data[:place] + data[place + chaos.randint(1, 20) :] or data


def doubled(chaos: random.Random, data: bytes) -> bytes:
    place = chaos.randrange(len(data))
    return data[: place + chaos.randint(1, 200)] + data[place:]


def stuffed(chaos: random.Random, data: bytes) -> bytes:
    place, odd = chaos.randrange(len(data)), [b"\r\n", b"\n", b"\0", b"\xff" * 9, b" ", b":"]
    return data[:place] + chaos.choice(odd) + data[place:]


NOISE = [flipped, cut, dropped, doubled, stuffed]


def talk(server: Server, requests: list[bytes]) -> None:
    """Send each over a connection of its own, and look at all that comes back."""

    def exchange(request: bytes) -> None:
        leaves = len(request) % 20 == 0
        connection, answer, is_whole = Exchange(server.address), b"", True
        connection.write(request[: len(request) // 2])
        connection.write(request[len(request) // 2 :])
        try:
            while not leaves and (more := connection.socket.recv(65536)):
                answer += more
        except ConnectionResetError:  # it closed before it had read all
            is_whole = False
        connection.leave()
        if is_whole and not leaves:
            assert_answered(request, answer)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(exchange, requests))


def assert_answered(request: bytes, answer: bytes) -> None:
    """These are whole HTTP answers, each below 500."""
    shown = f"seed {SEED}: {request[:2000]!r} got {answer[:2000]!r}"
    assert answer or b"CONNECT" in request or not request.strip(), shown
    while answer:
        head = HEAD.match(answer)
        assert head, shown
        assert int(head[1]) < 500, shown
        answer = answer[head.end() :]
        is_of_head = b"HEAD" in request and (not answer or answer.startswith(b"HTTP/1.1 "))
        if not head[1].startswith(b"1") and not is_of_head:
            answer = answer[body_size(head[2], answer, shown) :]


def body_size(headers: bytes, answer: bytes, shown: str) -> int:
    """How long the body is, and its frame; an AssertionError where it is not whole."""
    if size := SIZE.search(headers):
        assert len(answer) >= int(size[1]), shown
        return int(size[1])
    end = 0 if b"chunked" in headers.lower() else len(answer)
    while end < len(answer):
        chunk = CHUNK.match(answer, end)
        assert chunk, shown
        end = chunk.end() + int(chunk[1], 16) + 2
        assert answer[end - 2 : end] == b"\r\n", shown
        if int(chunk[1], 16) == 0:
            return end
    assert b"chunked" not in headers.lower(), shown
    return end
