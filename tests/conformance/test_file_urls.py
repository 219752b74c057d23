"""Files by URL: which hosts get which requests, and the errors of those that get none."""

import json
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.conformance import targets
from tests.conformance.chat import CANARY, Chat, assert_for_callers
from tests.conformance.client import JSON, Reply
from tests.conformance.conftest import OpenFleet
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.targets import Target
from tests.conformance.waiting import answer, delete, ids
from tests.stores.servers import wait_for
from tests.support.file_host import FileHost, file_host, redirect, response
from tests.support.files import PDF, jpeg, png, sent

pytestmark = pytest.mark.about("turns")
VENDOR_TARGETS = targets.TARGETS
PHOTO = png()
NOT_LISTED = "files[0].url: set FILE_HOSTS to allow this host."
INVALID = "files[0].url: send an https URL without user name and fragment."
FAILED = "files[0].url: the host did not send the file."
REDIRECTED = "files[0].url: the host redirects to a URL that FILE_HOSTS does not allow."
FORBIDDEN = "files[0].url: the agent must not connect to the address of this host."


@pytest.fixture(scope="module")
def host() -> Iterator[FileHost]:
    """The host that FILE_HOSTS lists."""
    with file_host() as host:
        yield host


@pytest.fixture
def other() -> Iterator[FileHost]:
    """A host that FILE_HOSTS does not list."""
    with file_host() as host:
        yield host


@pytest.fixture
def listed(fleet: Fleet, host: FileHost, chat: Chat) -> Chat:
    """A chat with an agent that may fetch files from `host`."""
    host.answers.clear()
    host.requests.clear()
    host.heads.clear()
    host.connections = 0
    host.left.clear()
    host.answers["/file"] = response(PHOTO)
    return chat.elsewhere(fleet.shared(FILE_HOSTS=f"files.example.com, {host.name}"))


def say(chat: Chat, text: str, *urls: str, **fields: Any) -> Reply:
    files = [{"url": url, **fields} for url in urls]
    return chat.post({"prompt": text + chat.tag, "files": files}, JSON)


def files_in(chat: Chat, text: str) -> list[tuple[str, bytes]]:
    """The files of the last request for a prompt."""
    return [(entry[1], entry[2]) for entry in chat.calls(text)[-1].history if entry[0] == "file"]


def refused(reply: Reply, message: str, status: int = 400, error: str = "invalid_request") -> bool:
    body = reply.json["error"]
    assert (reply.status, body["type"], body["message"]) == (status, error, message)
    assert_for_callers(body["message"])
    return True


def test_the_model_receives_the_file_in_each_turn(listed: Chat, host: FileHost) -> None:
    assert say(listed, "Look.", host.url(), media_type="image/png", name="a.png").turn == 1
    assert files_in(listed, "Look.") == [("image/png", PHOTO)]
    assert listed.say("Again.").turn == 2
    assert files_in(listed, "Again.") == [("image/png", PHOTO)]
    assert host.requests == ["/file"]


def test_the_content_decides_the_type(listed: Chat, host: FileHost) -> None:
    host.answers["/photo"] = response(PHOTO, "200 OK", "Content-Type: image/jpeg")
    host.answers["/table"] = response(b"Fact-42,b\n", "200 OK", "Content-Type: text/csv; a=b")
    assert say(listed, "Look.", host.url("/photo")).turn == 1
    assert files_in(listed, "Look.") == [("image/png", PHOTO)]
    assert say(listed, "Read.", host.url("/table")).turn == 2
    assert "Fact-42" in repr(listed.provider.calls[-1].request)
    host.answers["/photo"] = response(jpeg(), "200 OK", "Content-Type: image/png")
    reply = say(listed, "Other.", host.url("/photo"), media_type="image/png", name="a.png")
    assert (reply.status, reply.error) == (415, "unsupported_file")
    assert "a.png contains image/jpeg, not image/png." in reply.json["error"]["message"]
    assert listed.calls("Other.") == []


def test_files_with_data_and_files_by_url_keep_their_order(listed: Chat, host: FileHost) -> None:
    other_photo = png(3, 3)
    files = [sent("b.png", "image/png", other_photo), {"url": host.url()}]
    assert listed.post({"prompt": "Look." + listed.tag, "files": files}).turn == 1
    assert files_in(listed, "Look.") == [("image/png", other_photo), ("image/png", PHOTO)]


def test_the_files_of_a_prompt_are_fetched_at_the_same_time(listed: Chat, host: FileHost) -> None:
    both = threading.Barrier(2)

    def wait(connection: Any) -> None:
        both.wait(30)  # fails if the second request comes after the first answer
        connection.sendall(response(PHOTO))

    host.answers |= {"/1": wait, "/2": wait}
    assert say(listed, "Look.", host.url("/1"), host.url("/2")).turn == 1
    assert len(files_in(listed, "Look.")) == 2


def test_the_host_gets_no_headers_of_the_caller(listed: Chat, host: FileHost) -> None:
    secrets = {"Cookie": "a=secret", "Authorization": "Bearer secret", "X-Own": "secret"}
    body = {"prompt": "Look." + listed.tag, "files": [{"url": host.url()}]}
    assert listed.post(body, {**JSON, **secrets}).turn == 1
    (head,) = host.heads
    names = {line.partition(":")[0].lower() for line in head.split("\r\n")[1:] if line}
    assert names <= {"host", "accept", "accept-encoding", "user-agent", "connection"}
    assert f"Host: {host.name}\r\n" in head
    assert "Accept-Encoding: identity\r\n" in head
    assert "secret" not in head


def test_no_proxy_gets_the_request(fleet: Fleet, host: FileHost, chat: Chat) -> None:
    host.answers["/file"] = response(PHOTO)
    with file_host() as proxy:
        place = f"localhost:{host.port}"
        origin = proxy.url("")
        server = fleet.fresh(
            FILE_HOSTS=place,
            HTTP_PROXY=origin,
            http_proxy=origin,
            NO_PROXY="127.0.0.1",  # the model
            no_proxy="127.0.0.1",
            NODE_USE_ENV_PROXY=1,
        )
        direct = chat.elsewhere(server)
        assert say(direct, "Look.", f"http://{place}/file").turn == 1
        assert proxy.connections == 0


def test_no_url_is_fetched_without_the_setting(chat: Chat, host: FileHost) -> None:
    host.connections = 0
    assert refused(say(chat, "Look.", host.url()), NOT_LISTED)
    assert refused(say(chat, "Look.", "https://files.example.com/a.png"), NOT_LISTED)
    assert host.connections == 0
    assert chat.calls("Look.") == []
    assert chat.recalled() == []


def test_urls_that_are_not_of_a_listed_host_are_refused(
    listed: Chat, host: FileHost, other: FileHost
) -> None:
    here = f"127.0.0.1:{host.port}"
    for url in (
        other.url(),
        f"http://localhost:{host.port}/file",
        "https://files.example.com.:443/a",
        "https://files.example.com:8443/a",
        "https://files.example.com.evil.example/a",
        "https://evil.files.example.com/a",
        "https://\uff45xample.com/a",
        "https://127.0.0.1/file",
    ):
        reply = say(listed, "Look.", url)
        message = reply.json["error"]["message"]
        assert (reply.status, message) in {(400, NOT_LISTED), (400, INVALID)}, url
    for url in (
        "http://files.example.com/a",
        f"http://user:password@{here}/file",
        f"http://@{here}/file",
        f"http://{here}@{other.name}/file",
        f"http://{other.name}\\@{here}/file",
        f"http://{here}\\file",
        f"http://{here}/file#@{other.name}",
        f"http:{here}/file",
        f"http:///{here}/file",
        f"//{here}/file",
        f" http://{here}/file",
        f"ht\ntp://{here}/file",
        f"http://{here}/\tfile",
        f"http://{here}\x00/file",
        f"http://127%2e0.0.1:{host.port}/file",
        f"http://{here}/\ud800",
        f"ftp://{here}/file",
        "file:///etc/passwd",
        "data:image/png;base64,AAAA",
        "javascript:1",
        "http://",
        "",
    ):
        encoded = json.dumps({"prompt": "Look.", "files": [{"url": url}]}).encode()
        assert refused(listed.post(encoded, JSON), INVALID), url
    # Other forms of 127.0.0.1.
    for form in ("2130706433", "0x7f.1", "127.1", "0177.0.0.1", "[::ffff:127.0.0.1]"):
        reply = say(listed, "Look.", f"http://{form}:{host.port}/file")
        assert (reply.status, reply.error) == (400, "invalid_request"), form
    assert (host.connections, other.connections) == (0, 0)
    assert listed.recalled() == []


def test_wrong_fields_are_refused(listed: Chat, host: FileHost) -> None:
    url = host.url()
    wrong: list[dict[str, Any]] = [
        {"url": 1},
        {"url": None},
        {"url": [url]},
        {"url": url, "data": ""},
        {"url": url, "data": None},
        {"url": url, "name": 1},
        {"url": url, "media_type": None},
    ]
    for item in wrong:
        reply = listed.post({"prompt": "Look.", "files": [item]}, JSON)
        assert (reply.status, reply.error) == (400, "invalid_request"), item
        assert "or as {url}." in reply.json["error"]["message"]
    assert host.connections == 0


def test_names_are_compared_in_their_normal_form(fleet: Fleet, chat: Chat) -> None:
    """The listed names have no address: a failed connection means that the URL is allowed."""
    names = "B\u00fccher.invalid,XN--STRAE-OQA.invalid,[0:0:0::1]:9,localhost:9"
    server = chat.elsewhere(fleet.shared(FILE_HOSTS=names))
    for url in (
        "https://xn--bcher-kva.invalid/a",
        "HTTPS://B\u00dcCHER.INVALID:443/a?b",
        "https://stra\u00dfe.invalid",
        "http://[::1]:9/a",
        "http://LOCALHOST:9/a",
    ):
        assert refused(say(server, "Look.", url), FAILED), url


def test_three_redirects_are_followed(listed: Chat, host: FileHost) -> None:
    statuses = ["301 Moved", "303 See Other", "307 Temporary Redirect"]
    for number, status in enumerate(statuses):
        host.answers[f"/{number}"] = redirect(f"{number + 1}", status)
    host.answers["/3"] = response(PHOTO)
    assert say(listed, "Look.", host.url("/0")).turn == 1
    assert host.requests == ["/0", "/1", "/2", "/3"]
    host.answers["/start"] = redirect(host.url("/0"), "308 Permanent Redirect")
    message = "files[0].url: the host redirects more than 3 times."
    assert refused(say(listed, "Other.", host.url("/start")), message)
    assert host.requests[4:] == ["/start", "/0", "/1", "/2"]


def test_redirects_obey_the_same_rules(listed: Chat, host: FileHost, other: FileHost) -> None:
    for location in (
        other.url(),
        f"//{other.name}/file",
        f"http://{host.name}@{other.name}/file",
        f"http://user@{host.name}/file",
        f"{host.url()}#fragment",
        f"https://localhost:{host.port}/file",
        "http://files.example.com/a",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "http://[",
    ):
        host.answers["/start"] = redirect(location)
        assert refused(say(listed, "Look.", host.url("/start")), REDIRECTED), location
    assert set(host.requests) == {"/start"}
    assert other.connections == 0
    assert listed.recalled() == []


# The start of an agent whose names have other addresses: by name, one list for each lookup. Its
# HTTP clients log URLs, as instrumentations record them in spans.
PYTHON_NAMES = """
import json, os, socket, sys
names, real = json.loads(os.environ["NAMES"]), socket.getaddrinfo
def getaddrinfo(host, *arguments, **options):
    host = host.decode() if isinstance(host, bytes) else host
    if host not in names:
        return real(host, *arguments, **options)
    print("looked up", host, file=sys.stderr, flush=True)
    found = names[host].pop(0) if len(names[host]) > 1 else names[host][0]
    kinds = [socket.AF_INET6 if ":" in it else socket.AF_INET for it in found]
    return [(kind, socket.SOCK_STREAM, 6, "", (it, 0)) for kind, it in zip(kinds, found)]
socket.getaddrinfo = getaddrinfo
def instrument(module):
    try:
        transport = __import__(module).AsyncHTTPTransport
    except ImportError:
        return
    send = transport.handle_async_request
    async def handle_async_request(self, request):
        print("instrumented", request.url, file=sys.stderr, flush=True)
        return await send(self, request)
    transport.handle_async_request = handle_async_request
instrument("httpx")
instrument("httpx2")
import my_agent.harness.file_urls as urls
urls.FETCH_SECONDS = int(os.environ.get("FETCH_SECONDS", "30"))
from my_agent.main import cli
cli()
"""
TYPESCRIPT_NAMES = """
import dns from 'node:dns'
import http from 'node:http'
import https from 'node:https'
import { registerHooks, syncBuiltinESMExports } from 'node:module'
const names = JSON.parse(process.env.NAMES)
const real = dns.lookup
dns.lookup = (host, options, callback) => {
  if (!names[host]) return real(host, options, callback)
  console.error(`looked up ${host}`)
  const found = names[host].length > 1 ? names[host].shift() : names[host][0]
  const all = found.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }))
  if (options.all) setImmediate(callback, null, all)
  else setImmediate(callback, null, all[0].address, all[0].family)
}
function instrument(module, name) {
  const send = module[name]
  module[name] = (...args) => {
    console.error('instrumented', args[0]?.url ?? args[0]?.path ?? String(args[0]))
    return send(...args)
  }
}
for (const module of [http, https]) {
  instrument(module, 'request')
  instrument(module, 'get')
}
instrument(globalThis, 'fetch')
syncBuiltinESMExports()
registerHooks({
  load(url, context, next) {
    const module = next(url, context)
    if (!url.endsWith('/file_urls.ts')) return module
    const seconds = `FETCH_SECONDS = ${process.env.FETCH_SECONDS ?? 30}`
    return { ...module, source: String(module.source).replace('FETCH_SECONDS = 30', seconds) }
  },
})
"""


def with_names(target: Target) -> Target:
    """The target, started with the names in the variable NAMES."""

    def command(project: Path) -> list[str]:
        first, *rest = target.command(project)
        if target.is_node:
            script = project / "names.mjs"
            script.write_text(TYPESCRIPT_NAMES)
            return [first, "--import", str(script), *rest]
        return [str(project / ".venv" / "bin" / "python"), "-c", PYTHON_NAMES, "serve"]

    return replace(target, command=command, start=subprocess.Popen)


@pytest.fixture(scope="module")
def named(target: Target, open_fleet: OpenFleet) -> Iterator[Fleet]:
    with open_fleet(with_names(target)) as fleet:
        yield fleet


REFUSED_ADDRESSES = {
    "metadata": ["169.254.169.254"],
    "loopback": ["127.0.0.1"],
    "loopback-2": ["127.9.9.9"],
    "loopback-6": ["::1"],
    "unspecified": ["0.0.0.0"],
    "unspecified-6": ["::"],
    "link-local-6": ["fe80::1"],
    "multicast": ["224.0.0.1"],
    "multicast-6": ["ff02::1"],
    "broadcast": ["255.255.255.255"],
    "mapped": ["::ffff:127.0.0.1"],
    "mapped-metadata": ["::ffff:a9fe:a9fe"],
    "compatible": ["::7f00:1"],
    "translated": ["64:ff9b::7f00:1"],
    "translated-metadata": ["64:ff9b::a9fe:a9fe"],
    "6to4": ["2002:7f00:1::1"],
    "aws": ["fd00:ec2::254"],
    "alibaba": ["100.100.100.200"],
    "azure": ["168.63.129.16"],
    "second": ["192.0.2.1", "127.0.0.1"],
}


def test_a_name_with_an_address_of_this_machine_or_of_a_metadata_service_is_refused(
    named: Fleet, host: FileHost, chat: Chat
) -> None:
    names = {f"{name}.test": [found] for name, found in REFUSED_ADDRESSES.items()}
    names["localhost"] = [["192.0.2.1"]]  # then http would leave this machine
    places = {name: f"{name}:{host.port}" for name in names}
    listed = ",".join(places.values())
    server = chat.elsewhere(named.shared(NAMES=json.dumps(names), FILE_HOSTS=listed))
    host.connections = 0
    for name, place in places.items():
        scheme = "http" if name == "localhost" else "https"
        assert refused(say(server, "Look.", f"{scheme}://{place}/file"), FORBIDDEN), name
    assert host.connections == 0
    assert server.recalled() == []


def test_the_connection_goes_to_the_address_that_was_checked(
    named: Fleet, host: FileHost, chat: Chat
) -> None:
    """A name server may answer the second question with another address."""
    host.answers["/file"] = response(PHOTO)
    host.heads.clear()
    names = {
        "localhost": [["127.0.0.1"], ["192.0.2.1"]],
        # Nothing listens there.
        "rebinding.test": [["100::1"], ["127.0.0.1"]],
    }
    place, rebinding = f"localhost:{host.port}", f"rebinding.test:{host.port}"
    listed = f"{place},{rebinding}"
    fresh = named.fresh(NAMES=json.dumps(names), FILE_HOSTS=listed, FETCH_SECONDS=2)
    server = chat.elsewhere(fresh)
    assert say(server, "Look.", f"http://{place}/file").turn == 1
    assert [f"Host: {place}\r\n" in head for head in host.heads] == [True]
    assert server.server.log.count("looked up localhost") == 1
    host.connections = 0
    assert say(server, "Other.", f"https://{rebinding}/file").status == 400
    assert server.server.log.count("looked up rebinding.test") == 1
    assert host.connections == 0


def test_a_certificate_is_checked(fleet: Fleet, chat: Chat, tmp_path: Path) -> None:
    authority = trustme.CA()
    bundle = str(tmp_path / "ca.pem")
    authority.cert_pem.write_to_path(bundle)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with file_host(context) as host:
        host.answers["/file"] = response(PHOTO)
        places = f"localhost:{host.port},{host.name}"
        trusting = chat.elsewhere(
            fleet.fresh(SSL_CERT_FILE=bundle, NODE_EXTRA_CA_CERTS=bundle, FILE_HOSTS=places)
        )
        assert say(trusting, "Look.", f"https://localhost:{host.port}/file").turn == 1
        assert refused(say(trusting, "Look.", f"https://{host.name}/file"), FAILED)
        doubting = chat.elsewhere(fleet.fresh(FILE_HOSTS=places))
        assert refused(say(doubting, "Look.", f"https://localhost:{host.port}/file"), FAILED)
        assert host.requests == ["/file"]


def test_the_size_of_a_file_is_limited_while_it_arrives(
    fleet: Fleet, host: FileHost, chat: Chat
) -> None:
    small = chat.elsewhere(fleet.shared(FILE_HOSTS=host.name, MAX_FILE_BYTES=1000, MAX_FILES=2))
    host.left.clear()
    host.sent = 0
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    host.answers["/endless"] = host.stream(head, b"fa0\r\n" + b"a" * 4000 + b"\r\n", 0.001)
    reply = say(small, "Look.", host.url("/endless"), name="a.txt")
    assert refused(reply, "a.txt is larger than 1000 bytes.", 413, "payload_too_large")
    assert host.left.wait(30), "the connection stays open"
    host.answers["/large"] = response(b"a" * 1001)
    reply = say(small, "Look.", host.url("/large"))
    assert refused(reply, "The file is larger than 1000 bytes.", 413, "payload_too_large")
    host.answers["/fits"] = response(b"a" * 1000)
    assert say(small, "Fits.", host.url("/fits")).turn == 1
    reply = say(small, "Look.", *[host.url("/fits")] * 3)
    assert (reply.status, reply.error) == (413, "payload_too_large")
    assert host.requests.count("/fits") == 1


def test_the_files_must_fit_into_a_session(fleet: Fleet, host: FileHost, chat: Chat) -> None:
    small = chat.elsewhere(fleet.shared(FILE_HOSTS=host.name, MAX_SNAPSHOT_BYTES=5000))
    host.answers["/half"] = response(PDF + b"a" * 2500)
    reply = say(small, "Look.", host.url("/half"), host.url("/half"))
    assert (reply.status, reply.error) == (413, "session_too_large")
    assert small.calls("Look.") == []
    assert say(small, "Look.", host.url("/half")).turn == 1


def test_other_answers_are_refused(listed: Chat, host: FileHost) -> None:
    def drop(connection: Any) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + PHOTO)

    answers: list[tuple[bytes | Callable[[Any], None], str]] = [
        (response(PHOTO, "404 Not Found"), "the host answered with HTTP 404."),
        (response(PHOTO, "206 Partial Content"), "the host answered with HTTP 206."),
        (response(PHOTO, "500 Error"), "the host answered with HTTP 500."),
        (response(b"", "302 Found"), "the host answered with HTTP 302."),
        (response(PHOTO, "200 OK", "Content-Encoding: gzip"), "the host sent a compressed file."),
        (drop, "the host did not send the file."),
        (b"", "the host did not send the file."),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "the host did not send the file."),
        (b"HTTP/1.1 200 OK\r\nA: " + b"a" * 200_000, "the host did not send the file."),
    ]
    for content, message in answers:
        host.answers["/file"] = content
        assert refused(say(listed, "Look.", host.url()), f"files[0].url: {message}")
    host.answers["/file"] = response(b"")
    reply = say(listed, "Look.", host.url())
    assert (reply.status, reply.error) == (415, "unsupported_file")
    assert listed.calls("Look.") == []
    assert listed.recalled() == []


def test_a_file_has_a_time_limit(named: Fleet, host: FileHost, chat: Chat) -> None:
    hasty = chat.elsewhere(named.shared(FILE_HOSTS=host.name, NAMES="{}", FETCH_SECONDS=1))
    host.answers["/file"] = response(PHOTO)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    for slow in (host.stream(head, b"a", 0.05), host.stream(head[:-2], b"A: b\r\n", 0.05)):
        host.left.clear()
        host.answers["/slow"] = slow
        began = time.monotonic()
        reply = say(hasty, "Look.", host.url(), host.url("/slow"))
        assert refused(reply, "files[1].url: the host did not send the file within 1 seconds.")
        assert time.monotonic() - began < 20
        assert host.left.wait(30), "the connection stays open"
    assert hasty.calls("Look.") == []


def test_the_time_limit_of_the_turn_includes_the_file(
    fleet: Fleet, host: FileHost, chat: Chat
) -> None:
    hasty = chat.elsewhere(fleet.shared(FILE_HOSTS=host.name, TURN_TIMEOUT_SECONDS=1))
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    host.left.clear()
    host.answers["/slow"] = host.stream(head, b"a", 0.05)
    reply = say(hasty, "Look.", host.url("/slow"))
    assert (reply.status, reply.error) == (504, "turn_timeout")
    assert host.left.wait(30), "the connection stays open"


def test_a_caller_who_leaves_ends_the_fetch(listed: Chat, host: FileHost) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    host.answers["/slow"] = host.stream(head, b"a", 0.05)
    exchange = listed.send({"prompt": "Look." + listed.tag, "files": [{"url": host.url("/slow")}]})
    wait_for("a request for the file", lambda: host.requests == ["/slow"])
    exchange.leave()
    assert host.left.wait(30), "the connection stays open"
    assert listed.recalled() == []


def test_a_failed_file_ends_the_other_fetches_and_saves_nothing(
    listed: Chat, host: FileHost
) -> None:
    assert listed.say("First.").turn == 1
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    host.answers["/slow"] = host.stream(head, b"a", 0.05)
    reply = say(listed, "Look.", host.url("/slow"), host.url("/none"))
    assert refused(reply, "files[1].url: the host answered with HTTP 404.")
    assert host.left.wait(30), "the connection stays open"
    assert listed.calls("Look.") == []
    assert say(listed, "Look.", host.url()).turn == 2


def test_a_repeated_turn_fetches_nothing(listed: Chat, host: FileHost) -> None:
    body = {"prompt": "Look." + listed.tag, "files": [{"url": host.url()}]}
    key = {**JSON, "Idempotency-Key": "one"}
    first = listed.post(body, key)
    host.answers["/file"] = response(b"", "410 Gone")
    assert listed.post(body, key).json["reply"] == first.json["reply"]
    assert listed.post({"replace_turn": 1}, JSON).turn == 1
    assert files_in(listed, "Look.") == [("image/png", PHOTO)]
    assert host.requests == ["/file"]


def test_a_turn_that_waits_for_approval_keeps_the_file(
    approvals: Fleet, provider: Provider, host: FileHost
) -> None:
    host.requests.clear()
    host.answers["/file"] = response(PHOTO)
    chat = Chat(approvals.shared(FILE_HOSTS=host.name), provider)
    chat.script("Look.", [delete(chat)], ["Done."])
    reply = say(chat, "Look.", host.url())
    assert answer(chat, ids(reply)).turn == 1
    assert files_in(chat, "Look.") == [("image/png", PHOTO)]
    assert host.requests == ["/file"]


def test_a_url_is_neither_logged_nor_stored_nor_repeated(
    listed: Chat, host: FileHost, other: FileHost
) -> None:
    """`open_fleet` looks for the canary in all logs."""
    query = f"?signature={CANARY}-signature"
    path = f"/file{query}"
    host.answers |= {
        path: response(PHOTO),
        f"/redirect{query}": redirect(other.url(path)),
        f"/gzip{query}": response(PHOTO, "200 OK", "Content-Encoding: gzip"),
        f"/drop{query}": b"",
    }
    paths = [f"/none{query}", f"/redirect{query}", f"/gzip{query}", f"/drop{query}"]
    urls = [other.url(path), *map(host.url, paths), f"https://a b/{query}", f"{host.url(path)}#a"]
    for url in urls:
        reply = say(listed, "Look.", url)
        assert reply.status == 400
        assert b"signature" not in reply.body
    assert say(listed, "Look.", host.url(path)).turn == 1
    assert listed.say("Again.").turn == 2
    assert "signature" not in repr(listed.calls("Again.")[-1].request)
    assert "signature" not in listed.server.log


def test_instrumentations_of_http_clients_do_not_see_a_url(
    named: Fleet, host: FileHost, chat: Chat
) -> None:
    path = f"/file?signature={CANARY}-signature"
    host.answers[path] = response(PHOTO)
    server = chat.elsewhere(named.shared(FILE_HOSTS=host.name, NAMES="{}"))
    assert say(server, "Look.", host.url(path)).turn == 1
    assert "instrumented" in server.server.log  # the request to the model
    assert "signature" not in server.server.log
