"""A host of files on this machine: it records its requests, and its answers can be broken."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Answer = Callable[[socket.socket], None]


@dataclass
class FileHost:
    """Serves `answers` by path, with query; each connection gets one answer and is closed."""

    listener: socket.socket
    tls: ssl.SSLContext | None = None
    answers: dict[str, bytes | Answer] = field(default_factory=dict)
    connections: int = 0
    requests: list[str] = field(default_factory=list)  # their paths
    heads: list[str] = field(default_factory=list)
    sent: int = 0  # bytes of streams
    left: threading.Event = field(default_factory=threading.Event)  # a client left a stream
    _stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    @property
    def name(self) -> str:
        """The entry of FILE_HOSTS."""
        return f"127.0.0.1:{self.port}"

    def url(self, path: str = "/file") -> str:
        return f"http://{self.name}{path}"

    def serve(self) -> None:
        with suppress(OSError):  # until the listener is closed
            while True:
                connection, _ = self.listener.accept()
                self.connections += 1
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.settimeout(60)
            if self.tls:
                connection = self.tls.wrap_socket(connection, server_side=True)
            head = b""
            while b"\r\n\r\n" not in head:
                data = connection.recv(65536)
                if not data:
                    return
                head += data
            path = head.split()[1].decode()
            self.heads.append(head.decode())
            self.requests.append(path)
            answer = self.answers.get(path, response(b"", "404 Not Found"))
            if isinstance(answer, bytes):
                connection.sendall(answer)
            else:
                answer(connection)
            connection.close()

    def stream(self, head: bytes, data: bytes, pause: float = 0) -> Answer:
        """An answer that repeats `data` until its client leaves."""

        def answer(connection: socket.socket) -> None:
            try:
                connection.sendall(head)
                while not self._stopped.wait(pause):
                    connection.sendall(data)
                    self.sent += len(data)
            except OSError:
                self.left.set()

        return answer

    def stop(self) -> None:
        self._stopped.set()
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def response(content: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *headers]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + content


def redirect(location: str, status: str = "302 Found") -> bytes:
    return response(b"", status, f"Location: {location}")


@contextmanager
def file_host(tls: ssl.SSLContext | None = None) -> Iterator[FileHost]:
    host = FileHost(socket.create_server(("127.0.0.1", 0)), tls)
    threading.Thread(target=host.serve, daemon=True).start()
    try:
        yield host
    finally:
        host.stop()
