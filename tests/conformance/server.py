"""A rendered server as a process: bounded in time, and ended by its pid."""

import fcntl
import os
import re
import select
import signal
import subprocess
import termios
import threading
import time
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tests.conformance.client import Exchange, Headers, Reply
from tests.conformance.provider import PATIENCE
from tests.conformance.targets import Target
from tests.support.own_servers import STARTED, shared

ADDRESS = re.compile(rb'Listening on http://[0-9.]+:(\d+)("})?\s*$')


class Server:
    """`provider` is the origin of a model provider; None leaves MODEL unset: the offline model."""

    def __init__(
        self, target: Target, folder: Path, provider: str | None, settings: Mapping[str, int | str]
    ) -> None:
        project = target.project()
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONUNBUFFERED": "1",  # what is printed is in the log, however the process ends
            "HOST": "127.0.0.1",
            "PORT": "0",
            **(target.provider(provider) if provider else {}),
            **{name: str(value) for name, value in settings.items()},
        }
        self.settings = settings
        self.is_shared = False
        STARTED.append(self)
        self._lines: list[str] = []
        self._reading = threading.Lock()
        self._port: int | None = None
        self._listening = threading.Event()
        self._process = target.start(
            target.command(project),
            cwd=folder,  # not the project: no .env file of an owner is read
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="backslashreplace",
        )
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self._process.stdout, self._process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, as its own first lines say."""
        deadline = time.monotonic() + PATIENCE
        while not self._listening.wait(0.05):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the server did not start:\n{self.log}")
        assert self._port
        return ("127.0.0.1", self._port)

    @property
    def log(self) -> str:
        """Everything that it has written, to stdout and stderr: also what nobody has read yet."""
        while True:
            with self._reading:
                if not any(map(unread, (self._process.stdout, self._process.stderr))):
                    return "".join(self._lines)
            time.sleep(0.001)

    @property
    def megabytes(self) -> float:
        """The memory of the process, on Linux."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024

    def send(
        self,
        body: object = None,
        headers: Headers = (),
        *,
        method: str = "POST",
        path: str = "/invocations",
        receive_buffer: int | None = None,
    ) -> Exchange:
        """Send a request and come back at once; the reply is read from the exchange."""
        exchange = Exchange(self.address, receive_buffer=receive_buffer)
        exchange.send(method, path, headers, body)
        return exchange

    def post(self, body: object, headers: Headers = ()) -> Reply:
        return self.send(body, headers).reply()

    def get(self, path: str, headers: Headers = ()) -> Reply:
        return self.send(None, headers, method="GET", path=path).reply()

    def settle(self) -> None:
        """Let it read what was sent before: these round trips go through the same event loop."""
        for _ in range(4):
            assert self.get("/ping").status == 200

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)  # nothing, when it has ended

    def exit_code(self, within: float = PATIENCE) -> int:
        """Wait for its end; an AssertionError if it does not come."""
        try:
            code = self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running {within:g} s later") from None
        for reader in self._readers:
            reader.join(5)
        return int(code)

    def stop(self) -> None:
        self.signal()
        try:
            self.exit_code(within=3)
        except AssertionError:
            self._process.kill()
            self.exit_code()

    def _read(self, stream: IO[str]) -> None:
        rest, poll = b"", select.poll()
        poll.register(stream, select.POLLIN)
        while poll.poll():
            with self._reading:
                data = os.read(stream.fileno(), 1 << 16)
                *lines, rest = (rest + data).splitlines(True) or [b""]
                if rest.endswith(b"\n") or not data:
                    lines, rest = [*lines, rest], b""
                self._lines += [line.decode(errors="backslashreplace") for line in lines]
            for line in lines:
                if (match := ADDRESS.search(line)) and stream is self._process.stdout:
                    self._port = int(match[1])
                    self._listening.set()
            if not data:
                return


class Front(Server):
    """A proxy in front of servers, as clients see it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.settings, self._port = folder, {}, port

    @property
    def address(self) -> tuple[str, int]:
        assert self._port
        return ("127.0.0.1", self._port)


def unread(stream: IO[str]) -> bool:
    """Whether a pipe has something that was written and not yet read."""
    count = array("i", [0])
    fcntl.ioctl(stream, termios.FIONREAD, count)
    return count[0] > 0


class Fleet:
    """The servers of one target: one for each configuration, reused by all tests that want it."""

    def __init__(self, target: Target, folder: Path, provider: str) -> None:
        self.target, self.folder, self.provider = target, folder, provider
        self._shared: dict[tuple[tuple[str, int | str], ...], Server] = {}
        self._all: list[Server] = []

    def shared(self, offline: bool = False, **settings: int | str) -> Server:
        key = (("offline", offline), *sorted(settings.items()))
        if key not in self._shared:
            self._shared[key] = shared(self.fresh(offline, **settings))
            # The first turn is slow: clients of vendors load what they need when they need it.
            self._shared[key].post({"prompt": "Wake up."})
        return self._shared[key]

    def fresh(self, offline: bool = False, **settings: int | str) -> Server:
        """A server of its own, for a test that ends it."""
        server = Server(self.target, self.folder, None if offline else self.provider, settings)
        self._all.append(server)
        return server

    def stop(self) -> str:
        """End them all, at the same time, and return everything that they have written."""
        for server in self._all:
            server.signal()
        for server in self._all:
            server.stop()
        return "".join(server.log for server in self._all)
