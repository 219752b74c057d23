"""An example of a custom backend: `python tests/harness/reference_endpoint.py --port 8081`.

It speaks REST and the wire format of AWS Lambda. Each save creates a new ETag. With `--strict` it
stores only the fields that the specification documents.
"""

import argparse
import json
import re
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import compare_digest, token_hex
from typing import Any
from urllib.parse import parse_qsl, unquote

ID = "[A-Za-z0-9][A-Za-z0-9._-]{0,299}"
SESSION = f"{ID}|[!-~][ -~]{{31,254}}[!-~]"
UUID7 = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}"
TABLE = "CREATE TABLE IF NOT EXISTS kept(sid, scope, id, etag, json, UNIQUE(sid, scope, id))"
FIELDS = ("schema_version", "created_at")
DATA = ("messages", "state", "system_prompt")
HERE = "FROM kept WHERE sid = ? AND scope = ?"
OK = '{"ok": true}'
OLD = f"SELECT rowid {HERE} AND id LIKE '%-%' ORDER BY id DESC LIMIT -1 OFFSET 1000"


def text(call: Any, name: str, pattern: str = ID) -> str:
    """Return a required string of a request. Raises ValueError."""
    value = call.get(name) if isinstance(call, dict) else None
    if isinstance(value, str) and re.fullmatch(pattern, value):
        return value
    raise ValueError(f"{name} is missing or invalid")


def documented(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a snapshot that the specification documents."""
    data = {name: snapshot["data"][name] for name in DATA if name in snapshot["data"]}
    return {"data": data, **{name: snapshot.get(name) for name in FIELDS}}


class Endpoint(ThreadingHTTPServer):
    """The endpoint, on a port of this machine; 0 selects a free port."""

    request_queue_size = 128  # agents open many connections at once

    def __init__(
        self, port: int = 0, db: str = ":memory:", token: str = "", strict: bool = False
    ) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.token = token
        self._strict = strict
        self._lock = threading.Lock()
        self.data = sqlite3.connect(db, check_same_thread=False, isolation_level=None)
        self.data.execute(TABLE)

    def do(self, call: Any) -> tuple[int, str, str | None]:
        """Return the status, JSON and ETag of an operation, run in one transaction."""
        with self._lock, self.data:
            self.data.execute("BEGIN IMMEDIATE")
            return self._do(call, text(call, "operation"), text(call, "session_id", SESSION))

    def _do(
        self, call: dict[str, Any], operation: str, session: str
    ) -> tuple[int, str, str | None]:
        if operation == "delete_session":
            self.data.execute("DELETE FROM kept WHERE sid = ?", [session])
            return 200, OK, None
        scope = call.get("scope")
        here = session, f"{text(scope, 'type')}/{text(scope, 'scope_id')}"
        if operation == "list_snapshot_ids":  # only ids of checkpoints have a hyphen
            page = f"SELECT id {HERE} AND id LIKE '%-%' AND id > ? ORDER BY id LIMIT ?"
            after = str(call.get("start_after") or "")
            limit = min(max(int(call["limit"]), 0), 1000)
            ids = [id for (id,) in self.data.execute(page, [*here, after, limit])]
            return 200, json.dumps({"snapshot_ids": ids}), None
        verb, what = text(call, "operation", "(save|load)_(snapshot|manifest)").split("_")
        id = what if what == "manifest" else text(call, "snapshot_id", f"latest|{UUID7}")
        row = self.data.execute(f"SELECT etag, json {HERE} AND id = ?", [*here, id]).fetchone()
        etag, before = row or (None, "null")
        if verb == "load":
            return 304 if etag and etag == call.get("if_none_match") else 200, before, etag
        stored = {**call[what]}
        if self._strict and what == "snapshot":
            stored = documented(stored)
        new = f'"{token_hex()}"'
        value = json.dumps(stored, ensure_ascii=False)
        if "-" in id and etag:  # a checkpoint never changes; an identical save is a retry
            return (200, OK, etag) if value == before else (409, '{"ok": false}', etag)
        has_changed = call.get("if_match") not in (None, etag)
        if has_changed or (etag and call.get("if_none_match") == "*"):
            return 412, '{"ok": false, "error": "conflict"}', None
        self.data.execute("REPLACE INTO kept VALUES (?, ?, ?, ?, ?)", [*here, id, new, value])
        self.data.execute(f"DELETE FROM kept WHERE rowid IN ({OLD})", here)  # keep 1000 checkpoints
        return 200, OK, new


class Handler(BaseHTTPRequestHandler):
    """Handles REST requests and Lambda calls."""

    server: Endpoint
    protocol_version = "HTTP/1.1"
    timeout = 60
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Answer a request. A Lambda call always returns 200; a header marks its failure."""
        is_lambda = self.path.startswith("/2015-03-31/functions/")
        etag = None
        try:
            body = self.rfile.read(abs(int(self.headers["Content-Length"] or 0)))
            status, value, etag = self.server.do(
                json.loads(body) if is_lambda else self._payload(body)
            )
        except (PermissionError, ValueError, TypeError, KeyError, RecursionError) as error:
            value = json.dumps({"error": str(error)})
            status = 401 if isinstance(error, PermissionError) else 400
        value = json.dumps(json.loads(value) | {"etag": etag}) if is_lambda and etag else value
        sent = b"" if status == 304 else value.encode()
        self.send_response(200 if is_lambda else status)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(sent))}
        headers |= {"ETag": etag} if etag else {}
        headers |= {"X-Amz-Function-Error": "Unhandled"} if is_lambda and status == 400 else {}
        for header in headers.items():
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(sent)

    do_GET = do_DELETE = do_POST

    def _payload(self, body: bytes) -> dict[str, Any]:
        """Convert a REST request to the payload of a Lambda call; check its token."""
        headers = self.headers
        token = self.server.token
        path, _, query = self.path.partition("?")
        if token and not compare_digest(str(headers["Authorization"]), f"Bearer {token}"):
            raise PermissionError("the token is missing or wrong")
        if self.command == "DELETE":
            session = unquote(path.removeprefix("/sessions/"))
            return {"operation": "delete_session", "session_id": session}
        call = json.loads(body) if self.command == "POST" else dict(parse_qsl(query))
        if self.command == "GET":
            call["scope"] = {"type": call.get("scope_type"), "scope_id": call.get("scope_id")}
            is_load = path.endswith("s")
            call["operation"] = f"load_{path[1:-1]}" if is_load else "list_snapshot_ids"
        return {**call, "if_match": headers["If-Match"], "if_none_match": headers["If-None-Match"]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for option, default in {"--port": 0, "--db": ":memory:", "--token": ""}.items():
        parser.add_argument(option, type=type(default), default=default)
    parser.add_argument("--strict", action="store_true")
    endpoint = Endpoint(**vars(parser.parse_args()))
    print(f"Listening on http://127.0.0.1:{endpoint.server_port}", flush=True)
    endpoint.serve_forever()
