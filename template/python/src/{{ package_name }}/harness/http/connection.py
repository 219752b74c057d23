"""HTTP connections with limits on the size of request heads and on time."""

import socket
import sys
import time
from asyncio import Transport
from email.utils import formatdate
from http import HTTPStatus
from itertools import chain
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Message, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ..contract import AgentError

# As in Node, which uses the same parser. Trailers have the same limit.
MAX_HEAD_BYTES = 16_384
HEAD_END = b"\r\n\r\n"
CHUNK_FRAME = 12  # uncounted bytes around each chunk


def max_connections(max_turns: int) -> int:
    """Return the maximum number of connections: at most half the process's limit of open files."""
    connections = 256 + 4 * max_turns
    if sys.platform != "win32":
        from resource import RLIMIT_NOFILE, getrlimit

        descriptors, _ = getrlimit(RLIMIT_NOFILE)
        return connections if descriptors < 0 else min(connections, descriptors // 2)
    return connections


def _without_chunks(cycle: RequestResponseCycle) -> Send:
    """Return a `send` for HTTP/1.0: without chunks, a stream ends with its connection."""
    send = cycle.send
    is_stream = False

    async def send_plainly(message: Message) -> None:
        nonlocal is_stream
        if message["type"] == "http.response.start":
            is_stream = "content-length" not in Headers(raw=message["headers"])
        if is_stream:
            cycle.chunked_encoding = False
            cycle.expected_content_length = len(message.get("body", b""))  # of this part
        await send(message)  # type: ignore[arg-type]

    return send_plainly


class Connection(HttpToolsProtocol):
    """A connection whose client has `timeout_keep_alive` seconds to send each request.

    Above `max_connections`, the longest idle connection closes.
    """

    max_connections: int
    # Bytes that the app does not count: unparsed, or around the body.
    overhead = trailer_bytes = 0
    is_refused = False
    is_large = False  # the head or the trailers
    is_in_body = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        # Without TCP_NODELAY, responses wait for an ACK; asyncio sets it only on its own sockets.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self.since = time.monotonic()
        if len(self.connections) > self.max_connections:
            connections = (cast(Connection, connection) for connection in self.connections)
            idle = (connection for connection in connections if not connection._is_answering)
            longest = min(idle, key=lambda connection: connection.since)
            self.connections.discard(longest)
            longest.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.is_refused:  # closes after the earlier answers
            return
        self._unset_keepalive_if_required()
        start = 0
        while start < len(data) and not self.is_refused:
            # Parse a head alone, because its end resets `overhead`, which counts the rest.
            head_end = -1 if self.is_in_body else data.find(HEAD_END, start)
            end = len(data) if head_end < 0 else head_end + len(HEAD_END)
            self._parse(data[start:end])
            start = end

    def _parse(self, data: bytes) -> None:
        self.overhead += len(data)
        while data:
            try:
                self.parser.feed_data(data)
                break
            except HttpParserUpgrade as upgrade:
                data = self._without_upgrade(data[upgrade.args[0] :])
            except HttpParserError:
                return self._refuse("head_too_large" if self.is_large else "invalid_request")
        if self.overhead > MAX_HEAD_BYTES:
            self._refuse("invalid_request" if self.is_in_body else "head_too_large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.since = time.monotonic()
        self.trailer_bytes = 0
        self.is_in_body = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if "path" not in self.scope:
            return super().on_header(name, value)
        # Ignore trailers, because only the head identifies the caller; but limit their size.
        self.trailer_bytes += len(name) + len(value) + len(b":\r\n")
        self.is_large = self.trailer_bytes > MAX_HEAD_BYTES
        if self.is_large:
            raise HttpParserError("trailers too large")

    def on_headers_complete(self) -> None:
        self.overhead = 0
        self.is_in_body = True
        self.is_large = sum(map(len, chain([self.url], *self.headers))) > MAX_HEAD_BYTES
        if self.is_large or self.parser.get_method() == b"CONNECT":
            raise HttpParserError("head too large, or CONNECT")
        # Values exclude trailing spaces (RFC 9110, 5.5), which the parser keeps.
        self.headers[:] = [(name, value.rstrip(b" \t")) for name, value in self.headers]
        if not self.parser.should_upgrade():
            super().on_headers_complete()
            if self.parser.get_http_version() == "1.0":
                send = _without_chunks(self.cycle)
                self.cycle.send = send  # type: ignore[assignment,method-assign]

    def on_body(self, body: bytes) -> None:
        self.overhead = max(0, self.overhead - len(body) - CHUNK_FRAME)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.overhead = 0
        self.is_in_body = False
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def check_time(self) -> None:
        """Close the connection of a slow client; uvicorn closes idle connections."""
        is_late = time.monotonic() - self.since > self.timeout_keep_alive
        if is_late and not self._is_answering and not self.timeout_keep_alive_task:
            self._refuse("request_timeout")

    def _without_upgrade(self, rest: bytes) -> bytes:
        # httptools skips the body after an Upgrade header, which Java and curl send.
        version = self.parser.get_http_version().encode()
        head = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        head += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = HttpRequestParser(self)
        return b"\r\n".join([*head, b"", rest])

    @property
    def _is_answering(self) -> bool:
        is_running = self.cycle and not (self.cycle.more_body or self.cycle.response_complete)
        return bool(is_running or self.pipeline)

    def _refuse(self, type: str) -> None:
        self.is_refused = True
        if self._is_answering:
            return self.shutdown()  # after the current answer
        error = AgentError(type)
        status = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
        head = f"{status}Date: {formatdate(usegmt=True)}\r\n"
        head += "Connection: close\r\nContent-Type: application/json\r\n"
        head += "X-Content-Type-Options: nosniff\r\n\r\n"
        self.transport.write(head.encode() + bytes(JSONResponse(error.body).body))
        self.transport.close()
        # A client that does not read would keep its connection and the memory of its body.
        self.loop.call_later(1, self.transport.abort)
