"""An HTTP client that can also misbehave: a socket per request, read when the test wants it."""

import http.client
import json
import select
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

SESSION = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
USER = "X-Amzn-Bedrock-AgentCore-Runtime-User-Id"
ACTOR = "X-Amzn-Bedrock-AgentCore-Runtime-Custom-Actor-Id"
KEY = "Idempotency-Key"
CUSTOM_KEY = "X-Amzn-Bedrock-AgentCore-Runtime-Custom-Idempotency-Key"

KEEP_ALIVE = ": keep-alive"  # a comment of a silent stream
JSON = {"Accept": "application/json"}
EVENTS = {"Accept": "text/event-stream"}

Headers = Mapping[str, str] | Iterable[tuple[str, str]]
Event = tuple[str, Any]  # ("message", chunk), ("done", {...}) or ("error", {...})


@dataclass(frozen=True)
class Reply:
    """A whole response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes
    truncated: bool = False  # the connection ended before the body did

    @property
    def content_type(self) -> str:
        return self.headers.get_content_type()

    @property
    def session(self) -> str | None:
        return self.headers.get(SESSION)

    @property
    def json(self) -> Any:
        return json.loads(self.body.decode("utf-8"))

    @property
    def error(self) -> str:
        """The type of an error that came as a status."""
        assert self.content_type == "application/json", self
        return str(self.json["error"]["type"])

    @property
    def events(self) -> list[Event]:
        return parse_events(self.body)

    @property
    def chunks(self) -> list[str]:
        return [data for name, data in self.events if name == "message"]

    @property
    def text(self) -> str:
        """What was replied, as events or as JSON."""
        if self.content_type == "application/json":
            return str(self.json["reply"])
        return "".join(self.chunks)

    @property
    def turn(self) -> int:
        if self.content_type == "application/json":
            return int(self.json["turn"])
        name, data = self.events[-1]
        assert name == "done", self
        return int(data["turn"])


def parse_events(body: bytes) -> list[Event]:
    """Read Server-Sent Events, and nothing looser than what the contract says."""
    text = body.decode("utf-8")
    assert text == "" or text.endswith("\n\n"), f"an event without its end: {text[-200:]!r}"
    return [_event(block) for block in text.split("\n\n")[:-1] if block != KEEP_ALIVE]


def _event(block: str) -> Event:
    lines = block.split("\n")
    name = "message"
    if lines[0].startswith("event: "):
        name = lines.pop(0).removeprefix("event: ")
    assert len(lines) == 1, block
    assert lines[0].startswith("data: "), block
    return name, json.loads(lines[0].removeprefix("data: "))


class Exchange:
    """One connection: requests out, and replies in when asked for."""

    def __init__(self, address: tuple[str, int], receive_buffer: int | None = None) -> None:
        self.host = f"{address[0]}:{address[1]}"
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._response: http.client.HTTPResponse | None = None

    def send(self, method: str, path: str, headers: Headers = (), body: object = None) -> None:
        """Send bytes as they are, an iterator of bytes as chunks, and the rest as JSON."""
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        chunked = isinstance(body, Iterator)
        content = b"" if chunked else encoded(body)
        if chunked:
            pairs.append(("Transfer-Encoding", "chunked"))
        elif method != "GET" or content:
            pairs.append(("Content-Length", str(len(content))))
        if not any(name.lower() == "host" for name, _ in pairs):
            pairs.insert(0, ("Host", self.host))
        head = "".join(f"{name}: {value}\r\n" for name, value in pairs)
        self.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + content)
        if isinstance(body, Iterator):
            for chunk in body:
                self.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.write(b"0\r\n\r\n")

    def write(self, data: bytes) -> None:
        """Raw bytes; a server that has already answered may have stopped reading."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def head(self) -> http.client.HTTPResponse:
        """Wait for the status and the headers."""
        if self._response is None:
            self._response = http.client.HTTPResponse(self.socket)
            self._response.begin()
        return self._response

    def event(self) -> Event:
        """Wait for the next event of a stream."""
        response, block = self.head(), b""
        while not (block.endswith(b"\n\n") and parse_events(block)):
            line = response.readline()
            assert line, f"the stream ended: {block!r}"
            block += line
        return parse_events(block)[0]

    def reply(self, keep: bool = False) -> Reply:
        """Read to the end of the body. What event() has taken is not in it."""
        response, truncated = self.head(), False
        try:
            body = response.read()
        except http.client.IncompleteRead as rest:
            body, truncated = rest.partial, True
        self._response = None
        if not keep:
            self.leave()
        return Reply(response.status, response.msg, body, truncated)

    def answered(self, within: float) -> bool:
        """Whether anything has come back."""
        return bool(select.select([self.socket], [], [], within)[0])

    def leave(self) -> None:
        self.socket.close()
        if self._response is not None:
            self._response.close()


def encoded(body: object) -> bytes:
    if body is None:
        return b""
    if isinstance(body, bytes):
        return body
    return json.dumps(body, ensure_ascii=False).encode()
