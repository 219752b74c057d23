"""Ends a call of the AWS client with its turn, even before a response arrives.

The client blocks a thread, and cannot end a call from another thread.
"""

import math
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)

from ..contract import RUNNING

CALL: ContextVar["Call | None"] = ContextVar("CALL", default=None)


class Call:
    """A call that its turn can end."""

    def __init__(self) -> None:
        self._is_over = False
        self._turn = RUNNING.get(None)
        self._socket: Any = None  # until the response arrives
        self._response: Any = None

    def run(self, function: Callable[..., Any], **arguments: Any) -> Any:
        """Call a function of the client in this thread, and return its result."""
        token = CALL.set(self)
        try:
            return function(**arguments)
        finally:
            CALL.reset(token)

    def send_on(self, connection: Any) -> None:
        """Remember the connection. Raises ConnectionAbortedError if the turn is over."""
        self._socket = connection.sock
        self._response = None
        if self._is_over:
            raise ConnectionAbortedError("the turn is over")

    def read(self, response: Any) -> None:
        """Remember the response: after its end another call may use the connection."""
        self._socket = None
        self._response = response
        if self._turn:
            self._turn.note_answer(response.status, retry_after(response.headers))

    def end(self) -> None:
        """Abort a running read in another thread, and prevent further requests."""
        self._is_over = True
        with suppress(OSError, RuntimeError, ValueError):  # the call has already ended
            if self._response:
                self._response.shutdown()
            elif self._socket:
                self._socket.shutdown(socket.SHUT_RDWR)


def retry_after(headers: Any) -> str:
    """Return the seconds until the next call that a service asks for, or ""."""
    milliseconds = headers.get("x-amz-retry-after", "")
    if re.fullmatch("[0-9]{1,9}", milliseconds):
        return str(math.ceil(int(milliseconds) / 1000))
    return str(headers.get("retry-after", ""))


class _Connection(AWSHTTPConnection):  # type: ignore[misc]
    """A connection that registers itself with the call in its context."""

    def connect(self) -> None:
        super().connect()
        if call := CALL.get():
            call.send_on(self)

    def request(self, *args: Any, **kwargs: Any) -> None:
        if call := CALL.get():
            call.send_on(self)
        super().request(*args, **kwargs)

    def getresponse(self) -> Any:
        response = super().getresponse()
        if call := CALL.get():
            call.read(response)
        return response


class _TLSConnection(_Connection, AWSHTTPSConnection):  # type: ignore[misc]
    """A `_Connection` over TLS."""


AWSHTTPConnectionPool.ConnectionCls = _Connection
AWSHTTPSConnectionPool.ConnectionCls = _TLSConnection
