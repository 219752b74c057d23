"""The endpoint of test_store.py: a strict reference endpoint, over REST and as a function."""

import threading
from typing import Any, Self
from unittest.mock import patch

from boto3.session import Session
from reference_endpoint import Endpoint, Handler

from my_agent.harness.store import endpoint_lambda

PASSWORD = "sentinel-7d1"  # must not appear in logs or errors
ARN = "arn:aws:lambda:eu-west-1:123456789012:function:sessions"
REST = {
    "type": "rest-api",
    "base_url": "env:TESTS_URL",
    "credentials": {"scheme": "bearer-token", "source": "env", "name": "TESTS_TOKEN"},
}
LAMBDA = {"type": "lambda", "function_arn": ARN, "credentials": {"scheme": "iam-role"}}


class StoreServer:
    """A server whose data tests can change without a store."""

    kinds = ("rest-api", "lambda")
    lifetime = "project"
    is_listing = False  # whether the store can list its sessions

    def __enter__(self) -> Self:
        self._server = Endpoint(token=PASSWORD, strict=True)
        self._quiet = patch.object(Handler, "log_message")
        self._quiet.start()
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()
        # Share a session, because each session reads its data files again.
        self._session = patch.object(
            endpoint_lambda,
            "Session",
            return_value=Session(),
        )
        self._session.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.stop()
        self._quiet.stop()
        self._server.shutdown()
        self._server.server_close()

    def backend(self, kind: str, seconds: int) -> dict[str, Any]:
        """Return the `backend` of a collection; `seconds` limits a call."""
        transport = {"timeout_ms": seconds * 1000, **(REST if kind == "rest-api" else LAMBDA)}
        return {"type": "custom", "transport": transport}

    def environment(self, port: int) -> dict[str, str]:
        """Return the variables that connect a store to `port`, even without a server there."""
        url = f"http://127.0.0.1:{port}"
        keys = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": PASSWORD}
        return {"TESTS_URL": url, "TESTS_TOKEN": PASSWORD, "AWS_ENDPOINT_URL_LAMBDA": url, **keys}

    def read(self, session_id: str, agent_id: str) -> bytes:
        """Return the latest snapshot."""
        select = "SELECT json FROM kept WHERE id = 'latest' AND sid = ? AND scope = ?"
        row = self._server.data.execute(select, [session_id, f"agent/{agent_id}"]).fetchone()
        return str(row[0]).encode()

    def overwrite(self, session_id: str, agent_id: str, snapshot: bytes) -> None:
        """Replace the latest snapshot."""
        update = (
            "UPDATE kept SET json = ?, etag = 'e' WHERE id = 'latest' AND sid = ? AND scope = ?"
        )
        row = [snapshot.decode(), session_id, f"agent/{agent_id}"]
        assert self._server.data.execute(update, row).rowcount == 1

    def expire(self, session_id: str, agent_id: str) -> bool:
        """Expire the session; return False if the store has no time to live."""
        return False
