"""Endpoints that play a script, and collections at them."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from test_turn import Client

from app.memory.custom_store import CustomStore
from app.memory.models import Collection
from app.memory.options import Options
from app.memory.secrets import Secrets
from app.sessions import InProcess, Sessions

ARN = "arn:aws:lambda:eu-west-1:123456789012:function:memory"
ID = "01890000-0000-7000-8000-000000000000"
OPTIONS = Options(max_snapshot_bytes=100_000)
TURN = {"actor": None, "turn": 1, "key": "k", "reply": "é"}


async def _committed() -> Any:
    """What a turn commits."""
    client = Client(["é"])
    store = InProcess(client.parts.settings)
    client.parts.sessions = Sessions(client.parts.settings, store)
    await client.say("s", "é")
    return json.loads(await store.load("s") or b"")


SNAPSHOT = asyncio.run(_committed())
DATA: dict[str, Any] = {"state": {}} | SNAPSHOT["data"]
SNAPSHOT |= {"created_at": "2026-05-01T10:00:00Z", "data": DATA, "app_data": TURN}
SENT = SNAPSHOT | {"data": DATA | {"system_prompt": None}}
PLACE = {"session_id": "s", "scope": {"type": "agent", "scope_id": "a"}}
OK: Any = (200, {"ETag": '"1"'}, b'{"ok": true}')
NULL: Any = (200, {}, b"null")


class Scripted(BaseHTTPRequestHandler):
    """Answers what the server's script says, and notes what it was asked."""

    protocol_version, server = "HTTP/1.1", None  # type: ignore[assignment]

    def do_POST(self) -> None:
        """Play the next step."""
        server: Any = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server.asked.append((self.command, self.path, self.headers, json.loads(body or b"null")))
        status, headers, sent = server.script.pop(0)
        self.send_response(status)
        for header in ({"Content-Length": len(sent)} | headers).items():
            self.send_header(header[0], str(header[1]))
        self.end_headers()
        self.wfile.write(sent)

    do_GET = do_DELETE = do_POST


@contextmanager
def serving(server: Any) -> Iterator[str]:
    """The address of a server that runs meanwhile."""
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def scripted(*script: Any) -> Iterator[tuple[str, list[Any]]]:
    """The address of a server that plays a script, and what it was asked."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    server.script, server.asked = list(script), []
    with serving(server) as url:
        yield url, server.asked


def collection(url: str, scheme: Any = None, **transport: Any) -> Collection:
    """A collection at an address, or in a Lambda function."""
    place: dict[str, Any] = {"type": "rest-api", "base_url": url}
    if url == ARN:
        place, scheme = {"type": "lambda", "function_arn": ARN}, {"scheme": "iam-role"}
    declared = place | {"credentials": scheme or {"scheme": "none"}, "timeout_ms": 2000} | transport
    fields = {
        "spec_version": "1.2",
        "collection_id": "sessions",
        "version": "1.0.0",
        "status": "active",
        "meta": {"name": "n", "description": "d", "owner": "o"},
        "scope": {"lifetime": "project"},
        "backend": {"type": "custom", "transport": declared},
        "writeback": {"enabled": True},
    }
    return Collection.model_validate(fields)


def store(url: str, *more: Any, **transport: Any) -> CustomStore:
    """The store of such a collection."""
    return CustomStore(collection(url, *more, **transport), "a", OPTIONS, Secrets(OPTIONS))


def set_aws(monkeypatch: Any, url: str) -> None:
    """Let the SDK call functions at an address of this machine."""
    values = {"ENDPOINT_URL_LAMBDA": url, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}
    for name, value in values.items():
        monkeypatch.setenv(f"AWS_{name}", value)
