"""Every error that a request can earn, and which one is told when it earns two."""

import http.client
import itertools
import json
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.chat import Chat, assert_failed, assert_for_callers
from tests.conformance.client import ACTOR, KEY, SESSION, USER, Exchange, Reply
from tests.conformance.conftest import NewChat
from tests.conformance.server import Server
from tests.conformance.steps import Hold

pytestmark = pytest.mark.about("the server")

MAX_BODY_BYTES = 6_291_456  # the default

# What breaks each check, in the order in which the checks are made.
CHECKS = {
    "route": (404, "not_found"),
    "method": (405, "method_not_allowed"),
    "origin": (403, "origin_forbidden"),
    "size": (413, "payload_too_large"),
    "session id": (400, "invalid_session_id"),
    "JSON": (400, "invalid_json"),
    "body": (400, "invalid_request"),
    "actor": (400, "invalid_actor"),
    "key": (400, "invalid_request"),
}


def broken(server: Server, *checks: str) -> Reply:
    """Send a request that fails these checks and no other."""
    headers = {SESSION: f"session-{uuid.uuid4()}"}
    content = json.dumps({"prompt": "" if "body" in checks else "Hello."}).encode()
    if "JSON" in checks:
        content = b"{"
    if "size" in checks:
        content += b" " * MAX_BODY_BYTES
    if "origin" in checks:
        headers["Origin"] = "https://attacker.example"
    if "session id" in checks:
        headers[SESSION] = "no good"
    if "actor" in checks:
        headers[ACTOR] = "no good"
    if "key" in checks:
        headers[KEY] = "no good"
    method = "PUT" if "method" in checks else "POST"
    path = "/invocations//" if "route" in checks else "/invocations"
    return server.send(content, headers, method=method, path=path).reply()


@pytest.mark.parametrize("check", CHECKS)
def test_a_request_that_breaks_one_rule(server: Server, check: str) -> None:
    reply = broken(server, check)
    assert (reply.status, reply.error) == CHECKS[check]
    assert_for_callers(reply.json["error"]["message"])
    assert bool(reply.session) == (check != "session id") or check in ("route", "method")


PAIRS = [pair for pair in itertools.combinations(CHECKS, 2) if pair != ("JSON", "body")]


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda check: check)
def test_of_two_broken_rules_the_first_is_told(server: Server, first: str, second: str) -> None:
    reply = broken(server, first, second)
    assert (reply.status, reply.error) == CHECKS[first]
    if "session id" in (first, second):
        assert reply.session is None


def test_the_owner_is_looked_at_after_the_request_and_before_the_queue(
    new_chat: NewChat, gate: threading.Event
) -> None:
    ada = new_chat(actor="ada")
    ada.say("It is mine.")
    waiting = [ada.start("One.", [Hold(gate), "Done."])]
    ada.call("One.")
    waiting += [ada.start("Two.") for _ in range(8)]
    ada.server.settle()
    bob = new_chat(actor="bob", session=ada.session)
    assert_failed(bob.say("Hello."), 403, "session_forbidden", ada.session)
    assert_failed(ada.say("Hello."), 429, "session_busy", ada.session)
    assert_failed(bob.say("Hello.", headers={KEY: "a b"}), 400, "invalid_request", ada.session)
    gate.set()
    assert all(exchange.reply().status == 200 for exchange in waiting)


@pytest.mark.parametrize(
    "path",
    ["/", "/invocations//", "//invocations", "/Invocations", "/ping/", "/invocations/x", "/ws"],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_paths_are_exact(server: Server, method: str, path: str) -> None:
    reply = server.send({"prompt": "Hello."}, method=method, path=path).reply()
    assert (reply.status, reply.error) == (404, "not_found")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_invocations_are_posted(server: Server, method: str) -> None:
    reply = server.send({"prompt": "Hello."}, method=method).reply()
    assert (reply.status, reply.error) == (405, "method_not_allowed")
    assert reply.headers["Allow"] == "POST"


def test_a_slash_after_invocations_changes_nothing(server: Server) -> None:
    path = "/invocations/"
    reply = server.send({"prompt": "Hello."}, path=path).reply()
    assert (reply.status, reply.text) == (200, "You said: Hello.")
    reply = server.send(None, method="GET", path=path).reply()
    assert (reply.status, reply.headers["Allow"]) == (405, "POST")
    assert server.send({"prompt": "Hello."}, path=f"{path}/").reply().status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_pings_are_got(server: Server, method: str) -> None:
    reply = server.send(None, method=method, path="/ping").reply()
    assert (reply.status, reply.error) == (405, "method_not_allowed")
    assert "GET" in reply.headers["Allow"].replace(" ", "").split(",")


@pytest.mark.parametrize(
    "value", ["a", "0", "A-_9", "x" * 256, "-" * 33, "user@example.com/a b:c%2F_#1 (x)*", "~" * 256]
)
def test_a_session_id_is_echoed(server: Server, value: str) -> None:
    assert server.post({"prompt": "Hello."}, {SESSION: value}).session == value


@pytest.mark.parametrize(
    "value",
    [
        *("", "-a", "_a", "a b", "a/b", "a.b", "a:b", "../a", "x" * 257, "\u00e9", "a\tb", 'a"b'),
        *("a;b", "a/" * 16, "a/" * 129, "\u00e9" * 40, "a" * 20 + "\t" + "b" * 20),
    ],
)
def test_a_bad_session_id_is_not_echoed(server: Server, value: str) -> None:
    reply = server.post({"prompt": "Hello."}, {SESSION: value})
    assert_failed(reply, 400, "invalid_session_id", None)


def test_two_session_ids_are_refused(server: Server) -> None:
    headers = [(SESSION, "a" * 33), (SESSION, "b" * 33)]
    assert_failed(server.post({"prompt": "Hello."}, headers), 400, "invalid_session_id", None)


@pytest.mark.parametrize("header", [USER, ACTOR])
@pytest.mark.parametrize("value", ["a", "9", "a/b_c-d", "a:b", "a:/b:_c:-", "x" * 255])
def test_an_actor_has_a_name(chat: Chat, header: str, value: str) -> None:
    assert chat.say("Hello.", headers={header: value}).turn == 1
    assert chat.say("Hello.", headers={header: value}).turn == 2


@pytest.mark.parametrize("header", [USER, ACTOR])
@pytest.mark.parametrize(
    "value",
    ["", "/a", "-a", "_a", ":a", "a:", "a::b", "a b", "a.b", "a@b", "{a}", "x" * 256, "\u00e9"],
)
def test_a_bad_actor_is_refused(chat: Chat, header: str, value: str) -> None:
    reply = chat.say("Hello.", headers={header: value})
    assert_failed(reply, 400, "invalid_actor", chat.session)
    assert chat.calls("Hello.") == []


def whole(connection: http.client.HTTPConnection, body: bytes) -> tuple[int, Any]:
    connection.request("POST", "/invocations", body, {"Accept": "application/json"})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


@pytest.fixture
def connection(server: Server) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(*server.address, timeout=60)
    yield connection
    connection.close()


def test_a_connection_survives_an_error(connection: http.client.HTTPConnection) -> None:
    good, bad = b'{"prompt": "Hello."}', b'{"prompt": 1}'
    assert [whole(connection, body)[0] for body in (bad, good, b"{", good)] == [400, 200, 400, 200]


def test_the_answer_to_ten_megabytes_can_be_read(connection: http.client.HTTPConnection) -> None:
    status, body = whole(connection, b'{"prompt": "' + b"x" * 10_000_000 + b'"}')
    assert (status, body["error"]["type"]) == (413, "payload_too_large")


def test_the_answer_to_ten_megabytes_in_chunks_can_be_read(server: Server) -> None:
    reply = server.post(b"x" * 100_000 for _ in range(100))
    assert_failed(reply, 413, "payload_too_large", reply.session)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"\r\n\r\n\x00\r\n\r\n",
    ],
    ids=["TLS", "half a line", "nothing"],
)
def test_bytes_that_are_not_http_do_no_harm(chat: Chat, data: bytes) -> None:
    exchange = chat.server.send(None, method="GET", path="/ping")
    exchange.write(data)
    assert exchange.reply().status == 200
    assert chat.say("Hello.").turn == 1


def test_a_client_that_leaves_in_its_own_body_harms_nobody(chat: Chat) -> None:
    exchange = Exchange(chat.server.address)
    head = f"POST /invocations HTTP/1.1\r\nHost: {exchange.host}\r\n"
    head += f"{SESSION}: {chat.session}\r\nContent-Length: 100\r\n\r\n"
    exchange.write(head.encode() + b'{"prompt": "Half a')
    chat.server.settle()
    exchange.leave()
    assert chat.recalled() == []


def test_a_body_that_comes_slowly_is_read_to_its_end(chat: Chat) -> None:
    def slowly() -> Iterator[bytes]:
        for byte in json.dumps({"prompt": "Slow."}).encode():
            yield bytes([byte])
            chat.server.get("/ping")

    assert chat.server.post(slowly(), chat.headers).text == "You said: Slow."
