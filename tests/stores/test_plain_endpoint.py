"""An endpoint of an owner that has no ETags, and keeps JSON as a database does: by sorted keys."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.conformance.chat import Chat
from tests.conformance.client import JSON
from tests.conformance.provider import Provider
from tests.conformance.targets import TARGETS, with_own_agent
from tests.conformance.waiting import ASKED, answer, delete, ids, runs
from tests.stores.agents import Home, StoreFleet
from tests.stores.servers import Address
from tests.stores.stores import Backing

HEADERS = ("Authorization", "Content-Type")


@pytest.fixture
def plain(backing: Backing) -> Iterator[Address]:
    """Where the endpoint of the other tests answers without ETags, and with sorted keys."""
    host, port = backing.endpoint

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            sent = {name: self.headers[name] for name in HEADERS if name in self.headers}
            url = f"http://{host}:{port}{self.path}"
            # Without `verify`, each request would load all certificates.
            found = httpx.request(self.command, url, headers=sent, content=body, verify=False)
            text = json.dumps(found.json(), sort_keys=True).encode() if found.content else b""
            self.send_response(found.status_code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield "127.0.0.1", server.server_port
        server.shutdown()


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("name", [target.name for target in TARGETS])
def test_a_turn_that_waits_goes_on_once(
    name: str, plain: Address, backing: Backing, tmp_path: Path, provider: Provider
) -> None:
    (target,) = (target for target in TARGETS if target.name == name)
    target = with_own_agent(target, approval=True)
    fleet = StoreFleet(target, tmp_path, provider.origin, backing, "custom-rest")
    try:
        server = fleet.start(Home(target, backing, tmp_path, "custom-rest"), plain)
        chat = Chat(server, provider)
        assert chat.say("Hello.").turn == 1
        waiting = ids(chat.say(ASKED, [delete(chat)], ["Done."], headers=JSON))
        reply = answer(chat, waiting)
        assert (reply.status, reply.json.get("turn"), runs(chat)) == (200, 2, 1), reply
        assert answer(chat, waiting).error == "not_waiting"
        assert chat.say("And on.").turn == 3
    finally:
        fleet.stop()
