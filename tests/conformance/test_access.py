"""Who may call: ALLOWED_HOSTS, ALLOWED_ORIGINS and API_TOKEN, on loopback and beyond."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.chat import CANARY, assert_failed
from tests.conformance.client import SESSION
from tests.conformance.server import Fleet, Server

pytestmark = pytest.mark.about("the server")

OPEN = "2130706433"  # 127.0.0.1, but by this name it is not known to be loopback
PAGE = "https://www.example.com"
TOKEN = f"{CANARY}-is-the-token"
JSON_BODY = {"Content-Type": "application/json"}
OWN_PYTHON = """
from starlette.responses import Response
async def own(request, runtime):
    return Response("own")
r.ROUTES["GET /own"] = own
"""


@pytest.fixture(scope="module")
def beyond(fleet: Fleet) -> Server:
    """A server that other machines may reach, with the default settings."""
    return fleet.fresh(HOST=OPEN)


@pytest.fixture(scope="module")
def listed(fleet: Fleet) -> Server:
    """A server with names and pages that may call."""
    hosts = "agent.example.com, 10.0.0.5:80 ,[fd00::1]"
    return fleet.fresh(
        HOST=OPEN, ALLOWED_HOSTS=hosts, ALLOWED_ORIGINS=f"{PAGE},http://10.0.0.5:3000"
    )


@pytest.fixture(scope="module")
def guarded(fleet: Fleet) -> Server:
    return fleet.fresh(HOST=OPEN, API_TOKEN=TOKEN)


@pytest.mark.parametrize("origin", [PAGE, "null", "", f"http://{OPEN}", "http://agent.example.com"])
def test_no_foreign_page_may_call_beyond_loopback(beyond: Server, origin: str) -> None:
    reply = beyond.post({"prompt": "Hello."}, {"Origin": origin, **JSON_BODY})
    assert_failed(reply, 403, "origin_forbidden", reply.session)
    assert beyond.get("/ping", {"Origin": origin}).error == "origin_forbidden"


def test_without_a_list_any_host_may_be_called_beyond_loopback(beyond: Server) -> None:
    assert beyond.post({"prompt": "Hello."}, {"Host": "agent.example.com"}).status == 200


@pytest.mark.rows(where=lambda row: not row["target"].store)
def test_a_route_of_ones_own_is_read_by_address_only(fleet: Fleet) -> None:
    """A page may have a name that leads here, and would be sent without an Origin."""

    def command(project: Path) -> list[str]:
        if fleet.target.name.endswith("-python"):
            code = (
                f"import my_agent.routes as r\n{OWN_PYTHON}\nfrom my_agent.main import cli; cli()"
            )
            return [str(project / ".venv" / "bin" / "python"), "-c", code, "serve"]
        routes = (project / "src" / "routes.ts").as_uri()
        code = f"(await import('{routes}')).ROUTES['GET /own'] = (_, to) => to.end('own')"
        serve = fleet.target.command(project)
        return [serve[0], "--import", f"data:text/javascript,{code}", *serve[1:]]

    target = replace(fleet.target, command=command, start=subprocess.Popen)
    server = Server(target, fleet.folder, None, {"HOST": OPEN})
    try:
        assert server.get("/own", {"Host": "evil.example"}).error == "origin_forbidden"
        assert server.get("/own", {"Host": "10.0.0.5:8080"}).body == b"own"
    finally:
        server.stop()


@pytest.mark.parametrize(
    "kind", ["text/plain", "text/plain; x=application/json", "multipart/form-data", "", "json"]
)
def test_a_page_must_send_json(beyond: Server, kind: str) -> None:
    headers = {"Origin": "http://localhost:3000"}
    reply = beyond.post({"prompt": "Hello."}, {**headers, "Content-Type": kind})
    assert_failed(reply, 400, "invalid_request", reply.session)
    is_form = kind == "multipart/form-data"
    status = beyond.post({"prompt": "Hello."}, {"Content-Type": kind}).status
    assert status == (400 if is_form else 200)
    assert beyond.post({"prompt": "Hello."}, headers).error == "invalid_request"
    for good in (JSON_BODY, {"Content-Type": "Application/JSON; charset=utf-8"}):
        assert beyond.post({"prompt": "Hello."}, {**headers, **good}).status == 200


@pytest.mark.parametrize(
    "host",
    ["agent.example.com", "AGENT.example.com:8080", "10.0.0.5:80", "[fd00::1]:1", "127.0.0.1:1"],
)
def test_a_listed_host_may_be_called(listed: Server, host: str) -> None:
    assert listed.post({"prompt": "Hello."}, {"Host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    ["", ":80", "10.0.0.5", "10.0.0.5:81", "example.com", "x.agent.example.com", "[fd00::2]"],
)
def test_any_other_host_is_refused(listed: Server, host: str) -> None:
    reply = listed.post({"prompt": "Hello."}, {"Host": host})
    assert_failed(reply, 403, "origin_forbidden", reply.session)
    assert listed.get("/ping", {"Host": host}).error == "origin_forbidden"


def test_a_list_of_hosts_counts_on_loopback_too(fleet: Fleet) -> None:
    server = fleet.fresh(ALLOWED_HOSTS="agent.example.com")
    assert server.get("/ping", {"Host": "agent.example.com"}).status == 200
    assert server.get("/ping", {"Host": "www.example.com"}).status == 403
    assert server.get("/ping").status == 200


@pytest.mark.parametrize("origin", [PAGE, PAGE.upper(), "http://10.0.0.5:3000"])
def test_a_listed_page_may_call(listed: Server, origin: str) -> None:
    reply = listed.post({"prompt": "Hello."}, {"Origin": origin, **JSON_BODY})
    assert reply.status == 200


@pytest.mark.parametrize(
    "origin",
    ["http://www.example.com", f"{PAGE}:444", f"{PAGE}/", f"{PAGE}.evil.example", "null", ""],
)
def test_any_other_page_is_refused(listed: Server, origin: str) -> None:
    reply = listed.post({"prompt": "Hello."}, {"Origin": origin, **JSON_BODY})
    assert_failed(reply, 403, "origin_forbidden", reply.session)


def test_a_listed_page_gets_the_answers_of_cors(listed: Server) -> None:
    ask = {"Access-Control-Request-Method": "POST"}
    ask["Access-Control-Request-Headers"] = "authorization,content-type"
    reply = listed.send(None, {"Origin": PAGE, **ask}, method="OPTIONS").reply()
    assert reply.status == 200
    assert reply.headers["Access-Control-Allow-Origin"] == PAGE
    assert "POST" in reply.headers["Access-Control-Allow-Methods"]
    assert reply.headers["Access-Control-Allow-Headers"] == "authorization,content-type"
    reply = listed.post({"prompt": "Hello."}, {"Origin": PAGE, **JSON_BODY})
    assert reply.headers["Access-Control-Allow-Origin"] == PAGE
    exposed = f"{SESSION}, Retry-After, WWW-Authenticate"
    assert reply.headers["Access-Control-Expose-Headers"] == exposed
    assert reply.headers["Vary"] == "Origin"
    error = listed.post(b"{", {"Origin": PAGE, **JSON_BODY})
    assert (error.status, error.headers["Access-Control-Allow-Origin"]) == (400, PAGE)


def test_any_other_page_gets_none(listed: Server, beyond: Server) -> None:
    for server in (listed, beyond):
        ask = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        reply = server.send(None, ask, method="OPTIONS").reply()
        assert reply.status >= 400
        assert "Access-Control-Allow-Origin" not in reply.headers


@pytest.mark.parametrize("sent", [f"Bearer {TOKEN}", f"bearer {TOKEN}"])
def test_a_caller_with_the_token_may_call(guarded: Server, sent: str) -> None:
    assert guarded.post({"prompt": "Hello."}, {"Authorization": sent}).status == 200


@pytest.mark.parametrize(
    "sent",
    [None, "", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \u00e9"],
)
def test_any_other_caller_gets_401(guarded: Server, sent: str | None) -> None:
    headers = {SESSION: "s"} if sent is None else {SESSION: "s", "Authorization": sent}
    reply = guarded.post(b"{", headers)  # the token comes before the body
    assert_failed(reply, 401, "unauthorized", "s")
    assert reply.headers["WWW-Authenticate"] == "Bearer"
    assert guarded.post(b"{", {**headers, "Origin": PAGE}).error == "origin_forbidden"


def test_a_ping_needs_no_token(guarded: Server) -> None:
    assert guarded.get("/ping").status == 200


def test_an_open_server_without_a_token_warns(beyond: Server, guarded: Server) -> None:
    assert beyond.address
    assert guarded.address
    assert "callers are not authenticated" in beyond.log
    assert "callers are not authenticated" not in guarded.log


BAD = {
    "ALLOWED_HOSTS": ["*", "a b", "a,,b", "a,", "http://a", "a/b", "\u00e9.example"],
    "ALLOWED_ORIGINS": ["*", "0", "null", "www.example.com", f"{PAGE}/", "ftp://a", f"{PAGE},"],
    "API_TOKEN": [f"{CANARY} with blanks", f"{CANARY}\u00e9"],
    "FILE_HOSTS": ["*", "*.example.com", "https://a", "a/b", "a,,b", "127.1", "a:0", "[::g]"],
    "HISTORY_CHARS": ["0", "999", "1000000001", "many"],
    "KEEP_ALIVE_SECONDS": ["0", "86401", "never"],
    "LOG_FORMAT": ["JSON", "xml"],
    "MAX_RESULT_CHARS": ["999", "-1", "many"],
    "MAX_TOOLS_AT_ONCE": ["0", "1001"],
    "MAX_TOOL_CALLS": ["0", "10001"],
    "REQUEST_TIMEOUT_SECONDS": ["0", "86401", "-1", "1.5", "30s"],
}


# Of each setting one, until all were tried: a start names all that are bad.
TOGETHER = [
    {name: values[at] for name, values in BAD.items() if at < len(values)}
    for at in range(max(map(len, BAD.values())))
]


@pytest.mark.parametrize("settings", TOGETHER, ids=lambda settings: " ".join(settings.values()))
def test_a_bad_value_stops_the_start_and_is_named(fleet: Fleet, settings: dict[str, str]) -> None:
    server = fleet.fresh(offline=True, **settings)
    assert server.exit_code() == 1
    for name, value in settings.items():
        (line,) = (line for line in server.log.splitlines() if f"{name} is" in line)
        assert ": use " in line
        if name != "API_TOKEN":
            assert value.isascii() is False or value in line
