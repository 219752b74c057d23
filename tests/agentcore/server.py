"""AgentCore Memory over HTTP on 127.0.0.1: both planes on one port.

For a trial by hand: python -m tests.agentcore.server --memory notes --strategy
'semantic:/users/{actorId}/facts'; it prints what to export, and serves until it is interrupted.
"""

import argparse
import socket
import threading
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, cast

from tests.agentcore.dispatch import Answer, Cut, Dispatcher, Service
from tests.agentcore.memory import Service as Memories
from tests.agentcore.state import Given

STRATEGIES = {
    "semantic": "semanticMemoryStrategy",
    "summary": "summaryMemoryStrategy",
    "user_preference": "userPreferenceMemoryStrategy",
    "episodic": "episodicMemoryStrategy",
}
REGION = "us-east-1"
DAYS = 90


class Listener(ThreadingHTTPServer):
    """The port, and the connections to it, which end with it."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int, dispatcher: Dispatcher) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.dispatcher = dispatcher
        self.open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is none of this server's errors."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without both a call takes 40 ms more: Nagle's algorithm waits for a delayed acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # its connection broke: it was never asked
            self.close_connection = True
            return
        signature = self.headers.get("Authorization", "")
        dispatcher = cast(Listener, self.server).dispatcher
        try:
            self._send(dispatcher.answer(self.command, self.path, signature, body))
        except Cut:
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 (http.server)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("x-amzn-RequestId", str(uuid.uuid4()))
        if answer.error and answer.content_type == "application/json":
            self.send_header("x-amzn-ErrorType", answer.error)
        self.end_headers()
        self.wfile.write(answer.body)
        self.wfile.flush()

    def handle_expect_100(self) -> bool:
        proceed = super().handle_expect_100()
        self.wfile.flush()
        return proceed

    def log_message(self, format: str, *args: Any) -> None:
        pass


class LocalServer(Dispatcher):
    """A server: `with ... as server`. stop() keeps what it knows, and its port."""

    def __init__(self, service: Service, port: int = 0) -> None:
        super().__init__(service)
        self.port = port
        self._listener: Listener | None = None

    def start(self) -> None:
        self._listener = Listener(self.port, self)
        self.port = self._listener.server_port
        threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Close the port and every connection; calls that are held end."""
        self.faults.clear()
        listener, self._listener = self._listener, None
        if listener is None:
            return
        listener.shutdown()
        listener.server_close()
        for connection in list(listener.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class AgentCore(LocalServer):
    """AgentCore Memory."""

    def __init__(self, extraction_delay: float = 0.0, port: int = 0) -> None:
        self.service = Memories(extraction_delay)
        super().__init__(self.service, port)

    def environment(self) -> dict[str, str]:
        """The variables that bring every AWS SDK here."""
        return {
            "AWS_ENDPOINT_URL_BEDROCK_AGENTCORE": self.url,
            "AWS_ENDPOINT_URL_BEDROCK_AGENTCORE_CONTROL": self.url,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def settle(self) -> None:
        """Make visible what is still being extracted."""
        self.service.settle()

    def add_memory(self, name: str, *strategies: str, keys: tuple[str, ...] = ()) -> str:
        """A new memory's id; a strategy is "kind:namespace template", keys are namespace keys."""
        given: Given = {"name": name, "eventExpiryDuration": DAYS, "memoryStrategies": []}
        for strategy in strategies:
            kind, _, template = strategy.partition(":")
            own = {"name": f"{kind}_{len(given['memoryStrategies'])}"}
            more = {"namespaceTemplates": [template]} if template else {}
            given["memoryStrategies"].append({STRATEGIES[kind]: {**own, **more}})
        given["namespaceKeys"] = [{"key": key} for key in keys]
        created: str = self.service.call("CreateMemory", given)["memory"]["id"]
        return created

    def remember(self, memory_id: str, namespace: str, *texts: str) -> None:
        """Put records into a namespace, visible at once."""
        now = datetime.now(UTC)
        rows = [
            {
                "requestIdentifier": str(at),
                "namespaces": [namespace],
                "content": {"text": text},
                "timestamp": now,
            }
            for at, text in enumerate(texts)
        ]
        self.service.call("BatchCreateMemoryRecords", {"memoryId": memory_id, "records": rows})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--memory", default="memory")
    parser.add_argument("--strategy", action="append", default=[], metavar="KIND:TEMPLATE")
    parser.add_argument("--key", action="append", default=[], help="a key of namespaces")
    parser.add_argument("--extraction-delay", type=float, default=0.0, metavar="SECONDS")
    options = parser.parse_args()
    with AgentCore(options.extraction_delay, options.port) as server:
        identity = server.add_memory(options.memory, *options.strategy, keys=tuple(options.key))
        variables = server.environment()
        variables[f"AGENTCORE_MEMORY_{options.memory.upper()}_ID"] = identity
        for name, value in variables.items():
            print(f"export {name}={value}", flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
        print("\n".join(server.violations))


if __name__ == "__main__":
    main()
