"""A call of the AWS client that ends with its turn, also while nothing has answered it.

The client blocks a thread, and has no means to end a call from another one.
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
        self._socket: Any = None  # until the response begins
        self._response: Any = None

    def run(self, function: Callable[..., Any], **arguments: Any) -> Any:
        """Return what a function of the client returns, in the thread that calls this."""
        token = CALL.set(self)
        try:
            return function(**arguments)
        finally:
            CALL.reset(token)

    def send_on(self, connection: Any) -> None:
        """Note the connection; raise ConnectionAbortedError if the turn is over."""
        self._socket = connection.sock
        self._response = None
        if self._is_over:
            raise ConnectionAbortedError("the turn is over")

    def read(self, response: Any) -> None:
        """Note the response: once it is read, another call may use the connection."""
        self._socket = None
        self._response = response
        if self._turn:
            self._turn.note_answer(response.status, retry_after(response.headers))

    def end(self) -> None:
        """End a running read in another thread, and let the client send nothing more."""
        self._is_over = True
        with suppress(OSError, RuntimeError, ValueError):  # it has ended already
            if self._response:
                self._response.shutdown()
            elif self._socket:
                self._socket.shutdown(socket.SHUT_RDWR)


def retry_after(headers: Any) -> str:
    """Return in how many seconds a service wants the next call, or ""."""
    milliseconds = headers.get("x-amz-retry-after", "")
    if re.fullmatch("[0-9]{1,9}", milliseconds):
        return str(math.ceil(int(milliseconds) / 1000))
    return str(headers.get("retry-after", ""))


class _Connection(AWSHTTPConnection):  # type: ignore[misc]
    """A connection that the call in its context knows."""

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
    """The same over TLS."""


AWSHTTPConnectionPool.ConnectionCls = _Connection
AWSHTTPSConnectionPool.ConnectionCls = _TLSConnection
