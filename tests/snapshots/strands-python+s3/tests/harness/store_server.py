"""An S3 server for test_store.py: moto in this process, with one bucket."""

import threading
from datetime import timedelta
from typing import Any, Self
from unittest.mock import patch

from boto3.session import Session
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import WSGIRequestHandler, make_server

from my_agent.harness.store import s3

PASSWORD = "sentinel-7d1"  # must not appear in logs or errors
BUCKET = "sessions-of-tests"


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        pass


class StoreServer:
    """A server whose data tests can change without a store."""

    kinds = ("s3",)
    lifetime = "session"
    is_listing = True  # whether the store can list its sessions

    def __enter__(self) -> Self:
        moto: Any = DomainDispatcherApplication(create_backend_app)
        # Not threaded: moto compares and writes in two steps, so both of two saves could succeed.
        self._server = make_server("127.0.0.1", 0, moto, request_handler=_Quiet)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()
        # Share a session, because each session reads its data files again.
        self._session = patch.object(
            s3,
            "Session",
            return_value=Session(),
        )
        self._session.start()
        self._s3: Any = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        self._s3.create_bucket(BUCKET, "us-east-1")
        return self

    def __exit__(self, *_: object) -> None:
        self._session.stop()
        self._server.shutdown()
        self._s3.buckets.clear()

    def backend(self, kind: str, seconds: int) -> dict[str, Any]:
        """Return the `backend` of a collection; a setting limits the time of a call."""
        where = {"bucket_secret": "secrets/s3/tests", "region": "us-east-1", "prefix": "tests"}
        return {"type": kind, "ttl_days": 7, **where}

    def environment(self, port: int) -> dict[str, str]:
        """Return the variables that connect a store to `port`, even without a server there."""
        keys = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": PASSWORD}
        url = f"http://127.0.0.1:{port}"
        return {"SECRETS_S3_TESTS": BUCKET, "AWS_ENDPOINT_URL_S3": url, **keys}

    def read(self, session_id: str, agent_id: str) -> bytes:
        """Return the latest snapshot."""
        return bytes(self._s3.get_object(BUCKET, self._key(session_id, agent_id)).value)

    def overwrite(self, session_id: str, agent_id: str, snapshot: bytes) -> None:
        """Replace the latest snapshot."""
        self._s3.put_object(BUCKET, self._key(session_id, agent_id), snapshot)

    def expire(self, session_id: str, agent_id: str) -> bool:
        """Expire the session; return False if the store has no time to live."""
        latest = self._s3.get_object(BUCKET, self._key(session_id, agent_id))
        latest.last_modified -= timedelta(days=8)
        return True

    def _key(self, session_id: str, agent_id: str) -> str:
        return f"tests/{session_id}/agent/{agent_id}/snapshots/snapshot_latest.json"
