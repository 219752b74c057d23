"""One HTTP connection: what its client may send, and how long that may take."""

import socket
import time
from asyncio import Transport
from http import HTTPStatus

from httptools import HttpParserError
from starlette.responses import JSONResponse
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .contract import AgentError

MAX_HEAD_BYTES = 16_384  # as in Node, which has the same parser


class Connection(HttpToolsProtocol):
    """A connection whose client has `timeout_keep_alive` seconds to send each request."""

    head_bytes = 0  # received of an incomplete head

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        # asyncio does not do it for this listener, and answers would wait for an ACK.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self.since = time.monotonic()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_head = self.scope and "path" not in self.scope
        self.head_bytes = self.head_bytes + len(data) if is_head else 0
        if self.head_bytes > MAX_HEAD_BYTES:
            self._refuse("invalid_request")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.since = time.monotonic()

    def on_headers_complete(self) -> None:
        if sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD_BYTES:
            raise HttpParserError("the head is too large")
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse("invalid_request")

    def check_time(self) -> None:
        """Close the connection when its client takes too long; idle ones uvicorn closes."""
        is_late = time.monotonic() - self.since > self.timeout_keep_alive
        if is_late and not self._is_answering and not self.timeout_keep_alive_task:
            self._refuse("request_timeout")

    @property
    def _is_answering(self) -> bool:
        return bool(self.cycle) and not (self.cycle.more_body or self.cycle.response_complete)

    def _refuse(self, type: str) -> None:
        if self._is_answering:
            return self.shutdown()  # as soon as the answer is complete
        error = AgentError(type)
        status = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
        head = status + "Connection: close\r\nContent-Type: application/json\r\n\r\n"
        self.transport.write(head.encode() + bytes(JSONResponse(error.body).body))
        self.transport.close()
