"""A TCP proxy between an agent and its store: it can fail in every way, when a test says so."""

import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from tests.stores.servers import Address

PATIENCE = 60.0

IsSave = Callable[[bytes], bool]


class Proxy:
    """`is_save` recognises the request that saves a session in what a client has sent.

    `mode` is for every connection: "pass" hands on; "hang" takes and never answers; "drip" answers
    a byte at a time, `drip_ms` apart; "delay" answers `drip_ms` later; "cut" closes at the first
    byte; refuse() closes the port.
    `at_save` is what happens to the next save: "hold request" (until `release`, the store has not
    heard of it), "hang request" (the same, and from then on `mode` is "hang"), "hold reply" (until
    `release`, the store has done it), "cut request" and "cut reply" (the same, and the connection
    is closed). `held` is set when it has happened.
    """

    def __init__(self, behind: Address, is_save: IsSave = lambda _: False) -> None:
        self.behind, self._is_save = behind, is_save
        self.sent: list[bytes] = []  # what clients have sent, while `records`
        self.saves = 0
        self.bytes = 0
        self.accepted = 0  # connections
        self._connections: set[_Connection] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.release = threading.Event()
        self.held = threading.Event()
        self._listen()
        self.reset()

    @property
    def address(self) -> Address:
        return ("127.0.0.1", self.port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def reset(self) -> None:
        """Hand on everything again; connections that were hung are closed."""
        spoilt = getattr(self, "mode", "pass") != "pass"
        self.mode, self.drip_ms, self.at_save, self.records = "pass", 100, "", False
        self.spoil(b"", "", 0)
        self.sent = []
        self.release.set()  # whoever still waits goes on
        self.release, self.held = threading.Event(), threading.Event()
        if self._listener.fileno() < 0:
            self._listener = socket.create_server(self.address)
            self._listen()
        if spoilt:
            self.cut()

    def spoil(self, text: bytes, fault: str, times: int) -> None:
        """Let so many replies with this text be "changed" there, or "cut" off in front of it."""
        self._spoils, self.spoilt = (text, fault, times), 0

    def spoiled(self, data: bytes) -> tuple[bytes, bool]:
        """What is handed on of a reply, and whether it is all of it."""
        text, fault, times = self._spoils
        if self.spoilt == times or text not in data:
            return data, True
        self.spoilt += 1
        if fault == "cut":
            return data[: data.index(text)], False
        return data.replace(text, text.swapcase()), True

    def refuse(self) -> None:
        """Close the port and every connection."""
        # A thread that is in accept() keeps a closed socket listening: it is woken first.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Close every connection."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.close()

    def connections(self) -> int:
        """The number of connections that are open."""
        with self._lock:
            return len(self._connections)

    def wait_held(self) -> None:
        assert self.held.wait(PATIENCE), "there was no save"

    def close(self) -> None:
        self.refuse()
        self.release.set()

    def _listen(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                self.accepted += 1
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self.behind, timeout=5)
            server.settimeout(None)
        except OSError:
            client.close()
            return
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(self, client, server)
        with self._lock:
            self._connections.add(connection)
        back = threading.Thread(target=connection.replies, daemon=True)
        back.start()
        connection.requests()
        back.join(PATIENCE)
        with self._lock:
            self._connections.discard(connection)

    def claim_save(self, request: bytes) -> str:
        """What is to happen to this request; each wish is for one save."""
        with self._lock:
            if not self._is_save(request):
                return ""
            self.saves += 1
            wish, self.at_save = self.at_save, ""
            return wish

    def recognises(self, request: bytes) -> bool:
        return self._is_save(request)


class _Connection:
    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy, self.client, self.server = proxy, client, server
        self.request = b""  # what was sent since the last reply
        self.wish = ""
        self.is_counted = False
        self.is_late = False  # the store gets all of its request, whose body may come by itself

    def close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def requests(self) -> None:
        with suppress(OSError, ValueError):
            while data := self.client.recv(1 << 16):
                self._request(data)
        if self.is_late:  # what closes with a reply unread cuts the request too
            with suppress(OSError):
                self.server.shutdown(socket.SHUT_WR)
            return
        self.close()

    def _request(self, data: bytes) -> None:
        proxy = self.proxy
        proxy.bytes += len(data)
        if proxy.records:
            proxy.sent.append(data)
        if proxy.mode == "hang" and not self.is_late:
            return
        if proxy.mode == "cut":
            self.close()
            return
        self.request = (self.request + data)[-(1 << 20) :]
        if not self.is_counted and proxy.recognises(self.request):
            self.is_counted = True
            self.wish = proxy.claim_save(self.request)
        if self.wish.endswith("request"):
            release, held = proxy.release, proxy.held
            if self.wish.startswith("hang"):  # before a client can ask again
                proxy.mode, self.is_late = "hang", True
            held.set()
            if self.wish.startswith("cut"):
                self.close()
                return
            self.wish = ""
            release.wait(PATIENCE)
        self.server.sendall(data)

    def replies(self) -> None:
        with suppress(OSError, ValueError):
            while data := self.server.recv(1 << 16):
                self._reply(data)
        self.close()

    def _reply(self, data: bytes) -> None:
        proxy = self.proxy
        if CONTINUE.sub(b"", data):
            if self.wish.endswith("reply"):
                release, held = proxy.release, proxy.held
                held.set()
                if self.wish.startswith("cut"):
                    self.close()
                    return
                release.wait(PATIENCE)
            self.request, self.wish, self.is_counted = b"", "", False
        if proxy.mode == "hang":
            return
        if proxy.mode == "delay":
            time.sleep(proxy.drip_ms / 1000)
        if proxy.mode == "drip":
            for byte in data:
                time.sleep(proxy.drip_ms / 1000)
                self.client.sendall(bytes([byte]))
            return
        data, is_whole = proxy.spoiled(data)
        self.client.sendall(data)
        if not is_whole:
            self.close()


# moto's server sends two of these for one request; the second may come together with the reply.
CONTINUE = re.compile(rb"\A(HTTP/1\.1 100 [^\r]*\r\n\r\n)+")
HEAD = re.compile(rb"(GET|POST|PUT|DELETE|HEAD) (\S+) HTTP/1\.1\r\n((?:[^\r\n]+\r\n)*)\r\n")


def http_requests(sent: list[bytes]) -> list[tuple[str, str, dict[str, str], bytes]]:
    """The requests (method, path, headers, body) of one connection that was recorded."""
    data, found = b"".join(sent), []
    while match := HEAD.match(data):
        lines = match[3].decode().split("\r\n")[:-1]
        pairs = (line.partition(":")[::2] for line in lines)
        headers = {name.lower(): value.strip() for name, value in pairs}
        data = data[match.end() :]
        length = int(headers.get("content-length", 0))
        found.append((match[1].decode(), match[2].decode(), headers, data[:length]))
        data = data[length:]
    return found
