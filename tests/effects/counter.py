"""A service that counts calls: with or without deduplication by key, and it can lose replies."""

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class CounterService:
    """POST /calls {"key", "name"} counts a call; GET /calls/KEY asks for its result.

    `lose` replies are lost: the service counts the call, then closes the connection.
    """

    def __init__(self, *, deduplicates: bool) -> None:
        self.deduplicates = deduplicates
        self.keys: dict[str, str] = {}  # the names of the calls by key
        self.counts: Counter[str] = Counter()  # of the effects by key
        self.requests = 0
        self.lose = 0
        self.pause: threading.Event | None = None  # until it is set, the service does not reply
        self._lock = threading.Lock()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.service = self
        self.origin = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def count(self, key: str, name: str) -> bool:
        """Count a call; return whether its reply is lost."""
        with self._lock:
            self.requests += 1
            is_new = key not in self.keys
            self.keys[key] = name
            if is_new or not self.deduplicates:
                self.counts[key] += 1
            is_lost = self.lose > 0
            self.lose -= is_lost
            return is_lost

    def effects(self, name: str) -> int:
        """The number of effects of the calls with a name."""
        with self._lock:
            return sum(self.counts[key] for key, it in self.keys.items() if it == name)

    def keys_of(self, name: str) -> list[str]:
        with self._lock:
            return [key for key, it in self.keys.items() if it == name]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    service: CounterService

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a killed client is a scenario


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        service = self.server.service
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_lost = service.count(body["key"], body["name"])
        if service.pause:
            service.pause.wait(60)
        if is_lost:
            self.close_connection = True
            return
        self._reply(200, {"result": f"counted {body['name']}"})

    def do_GET(self) -> None:
        name = self.server.service.keys.get(self.path.rpartition("/")[2])
        self._reply(200 if name else 404, {"result": f"counted {name}"})

    def _reply(self, status: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
