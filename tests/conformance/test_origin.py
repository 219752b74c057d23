"""A web page must not talk to a local agent: foreign Host and Origin are refused."""

import pytest

from tests.conformance.chat import Chat, assert_failed
from tests.conformance.server import Server

pytestmark = pytest.mark.about("the server")

LOCAL = ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"]
JSON_BODY = {"Content-Type": "application/json"}
FOREIGN = [
    "attacker.example",
    "localhost.attacker.example",
    "127.0.0.1.attacker.example",
    "attacker.example:8080",
    "192.168.0.1",
    "notlocalhost",
    "",
]


@pytest.mark.parametrize("port", ["", ":8080", ":65535"])
@pytest.mark.parametrize("name", LOCAL)
def test_a_local_host_and_origin_are_fine(chat: Chat, name: str, port: str) -> None:
    headers = {"Host": name + port, "Origin": f"http://{name.lower()}{port}", **JSON_BODY}
    assert chat.say("Hello.", headers=headers).turn == 1


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_host_is_refused(chat: Chat, host: str) -> None:
    reply = chat.say("Hello.", headers={"Host": host})
    assert_failed(reply, 403, "origin_forbidden", chat.session, names=host)
    assert chat.calls("Hello.") == []


@pytest.mark.parametrize(
    "origin",
    [
        *(f"https://{host}" for host in FOREIGN if host),
        "null",
        "",
        "file://",
        "http://localhost@attacker.example",
        "http://attacker.example/localhost",
    ],
)
def test_a_foreign_origin_is_refused(chat: Chat, origin: str) -> None:
    reply = chat.say("Hello.", headers={"Origin": origin})
    assert_failed(reply, 403, "origin_forbidden", chat.session, names=origin)
    assert chat.calls("Hello.") == []


@pytest.mark.parametrize("kind", [None, "", "text/plain", "application/x-www-form-urlencoded"])
def test_a_page_that_names_no_json_runs_nothing(chat: Chat, kind: str | None) -> None:
    """`fetch` sends a Blob without a type, and asks nobody: no other port may run a turn by it."""
    types = {} if kind is None else {"Content-Type": kind}
    reply = chat.say("Hello.", headers={"Origin": "http://localhost:3000", **types})
    assert_failed(reply, 400, "invalid_request", chat.session)
    assert chat.calls("Hello.") == []
    origin = {"Origin": "http://localhost:3000", "Content-Type": "application/json; charset=utf-8"}
    assert chat.say("Hello again.", headers=origin).turn == 1


@pytest.mark.parametrize("headers", [{"Host": "attacker.example"}, {"Origin": "null"}])
def test_a_foreign_ping_is_refused(server: Server, headers: dict[str, str]) -> None:
    assert server.get("/ping", headers).error == "origin_forbidden"


def test_no_page_is_invited(server: Server) -> None:
    reply = server.post({"prompt": "Hello."}, {"Origin": "http://localhost:3000", **JSON_BODY})
    assert reply.status == 200
    assert "*" not in (reply.headers.get("Access-Control-Allow-Origin") or "")
