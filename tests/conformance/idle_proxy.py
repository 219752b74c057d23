"""A proxy with a short idle limit, as strict as nginx, ALB and CloudFront with their defaults."""

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.conformance.server import Front, Server

TIMEOUT = (
    b"HTTP/1.1 504 Gateway Timeout\r\nContent-Type: text/html\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)


@contextmanager
def idle_proxy(server: Server, seconds: float) -> Iterator[Front]:
    """Put a proxy in front of a server.

    After so many seconds without a byte from the server it ends a request: with the status 504, or
    by cutting the connection if the reply has begun.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    accepting = (listener, server.address, seconds)
    threading.Thread(target=_accept, args=accepting, daemon=True).start()
    try:
        yield Front(server.folder, int(listener.getsockname()[1]))
    finally:
        # A thread that is in accept() keeps a closed socket listening: it is woken first.
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _accept(listener: socket.socket, behind: tuple[str, int], seconds: float) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            serving = (client, behind, seconds)
            threading.Thread(target=_serve, args=serving, daemon=True).start()


def _serve(client: socket.socket, behind: tuple[str, int], seconds: float) -> None:
    with client, socket.create_connection(behind) as server, suppress(OSError):
        has_begun, last_byte = False, time.monotonic()
        while True:
            left = max(0, last_byte + seconds - time.monotonic())
            readable, _, _ = select.select([client, server], [], [], left)
            if not readable:
                client.sendall(b"" if has_begun else TIMEOUT)
                return
            for source, target in ((client, server), (server, client)):
                if source not in readable:
                    continue
                data = source.recv(65536)
                if not data:
                    return
                target.sendall(data)
            if server in readable:
                has_begun, last_byte = True, time.monotonic()
