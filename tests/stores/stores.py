"""The table of stores: how a collection names one, how to reach it, and how to look inside."""

import json
import re
import sqlite3
import time
import uuid
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import httpx
import valkey

from tests.stores.proxy import Proxy
from tests.stores.servers import Address, reference_endpoint, s3_server, valkey_server

# Stands in every credential. No log, no error and no file of a render may ever show it.
SENTINEL = "sentinel-3f9c1"
BUCKET = "sessions-of-agents"
FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:sessions"
AWS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": SENTINEL, "AWS_REGION": "us-east-1"}
TTL = 3600  # seconds that a session in Valkey lives
PATIENT = 30  # seconds that a store may take, on a busy machine too

LATEST = re.compile(rb'"is_latest": ?true')
OF_FILE = b".file-"  # in the scope of a file at an endpoint

STORES = ["valkey", "s3", "custom-rest", "custom-lambda"]

SESSION_SCOPE = """\
scope:
  lifetime: "session"
"""
PROJECT_SCOPE = """\
scope:
  lifetime: "project"
"""
RETRY = """\
    retry_policy:
      max_attempts: {attempts}
      on_status: [429, 503]
      backoff_ms: 10
"""


@dataclass
class Backing:
    """The servers of one test process; each is started when it is first needed."""

    folder: Path
    stack: ExitStack

    @cached_property
    def valkey(self) -> Address:
        server = valkey_server(self.folder / "valkey", ["--requirepass", SENTINEL], SENTINEL)
        return self.stack.enter_context(server)

    @cached_property
    def s3(self) -> Address:
        address = self.stack.enter_context(s3_server(self.folder / "s3"))
        s3_client(address).create_bucket(Bucket=BUCKET)
        return address

    @cached_property
    def endpoint(self) -> Address:
        server = reference_endpoint(self.folder / "endpoint", self.endpoint_data, SENTINEL)
        return self.stack.enter_context(server)

    @property
    def endpoint_data(self) -> Path:
        return self.folder / "sessions.sqlite"


def s3_client(address: Address, service: str = "s3") -> Any:
    return boto3.client(
        service,
        endpoint_url=f"http://{address[0]}:{address[1]}",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key=SENTINEL,
    )


class Store(ABC):
    """One kind of store for the tests of one process."""

    name: str
    answer: str  # to `session_store`: the render that has its adapter
    expires = False  # whether it forgets by itself

    def __init__(self, backing: Backing, agent_id: str) -> None:
        self.backing, self.agent_id = backing, agent_id

    @property
    @abstractmethod
    def address(self) -> Address:
        """Where its server is."""

    @abstractmethod
    def declared(self, **_: Any) -> str:
        """`scope` and `backend` of its collection file."""

    @abstractmethod
    def environment(self, address: Address) -> dict[str, str]:
        """The variables with which an agent reaches it at an address, a proxy's perhaps."""

    @staticmethod
    @abstractmethod
    def is_save(request: bytes) -> bool:
        """Whether these bytes of a client ask to save the last snapshot."""

    @abstractmethod
    def read(self, session: str) -> bytes | None:
        """The bytes that are stored last."""

    @abstractmethod
    def write(self, session: str, data: bytes) -> None:
        """Replace the bytes that are stored last, behind the back of every agent."""

    @abstractmethod
    def quarantined(self, session: str) -> list[bytes]:
        """What was quarantined, verbatim."""

    @abstractmethod
    def quarantine_names(self, session: str) -> list[str]:
        """The ids of what was quarantined."""

    @abstractmethod
    def checkpoints(self, session: str) -> list[str]:
        """The ids of the immutable checkpoints, oldest first."""

    @abstractmethod
    def everything(self) -> str:
        """All that is stored, as text: to look for what must not be in it."""

    @abstractmethod
    def files(self, session: str) -> dict[str, bytes]:
        """The files of a session by name, as they are stored beside its snapshot."""

    @abstractmethod
    def write_file(self, session: str, name: str, content: bytes | None) -> None:
        """Replace a file behind the back of every agent; None deletes it."""

    def bring_forward(self, session: str) -> None:
        """Let all checkpoints of a session be of a clock that is far ahead."""
        raise NotImplementedError

    def expire(self, session: str) -> None:
        """Let the time of a session run out, as if it had not been used for long."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until the store has done what it was asked for by a process that is gone."""
        before: object = ()
        while (now := self.everything()) != before:
            before = now
            time.sleep(0.05)

    def proxy(self) -> Proxy:
        return Proxy(self.address, self.is_save)

    def snapshot(self, session: str) -> Any:
        """What is stored last, or None: a session that nobody knows, or a marker in its place."""
        data = self.read(session)
        value = None if data is None else json.loads(data)
        return None if value and "set_aside" in (value.get("app_data") or {}) else value

    def turns(self, session: str) -> int:
        """The number of committed turns."""
        snapshot = self.snapshot(session)
        return int(snapshot["app_data"]["turn"]) if snapshot else 0


class ValkeyStore(Store):
    name = answer = "valkey"
    expires = True

    @property
    def address(self) -> Address:
        return self.backing.valkey

    def declared(self, **_: Any) -> str:
        return f"""{SESSION_SCOPE}backend:
  type: "valkey"
  endpoint_secret: "secrets/valkey/sessions"
  key_prefix: "session"
  ttl_seconds: {TTL}
"""

    def environment(self, address: Address) -> dict[str, str]:
        return {"SECRETS_VALKEY_SESSIONS": f"valkey://:{SENTINEL}@{address[0]}:{address[1]}"}

    @staticmethod
    def is_save(request: bytes) -> bool:
        return bool(re.search(rb"\r\neval\r\n", request, re.I)) and b"'rev', ARGV[3]" in request

    @cached_property
    def client(self) -> Any:
        return valkey.Valkey(*self.address, password=SENTINEL)

    def key(self, session: str) -> str:
        return f"session:{quote(session, safe='')}:agent:{self.agent_id}"

    def read(self, session: str) -> bytes | None:
        data: bytes | None = self.client.hget(self.key(session), "latest")
        return data

    def write(self, session: str, data: bytes) -> None:
        # Under a revision of its own, as another program's write is.
        fields = {"latest": data, "rev": str(uuid.uuid4())}
        self.client.hset(self.key(session), mapping=fields)

    def quarantined(self, session: str) -> list[bytes]:
        fields = self.client.hgetall(self.key(session))
        return [value for name, value in sorted(fields.items()) if name.startswith(b"aside:")]

    def quarantine_names(self, session: str) -> list[str]:
        names = [name.decode() for name in self.client.hkeys(self.key(session))]
        return [name.removeprefix("aside:") for name in names if name.startswith("aside:")]

    def checkpoints(self, session: str) -> list[str]:
        names = sorted(name.decode() for name in self.client.hkeys(self.key(session)))
        return [name.removeprefix("h:") for name in names if name.startswith("h:")]

    def everything(self) -> str:
        keys = self.client.keys(f"*:agent:{self.agent_id}")
        return repr({key: self.client.hgetall(key) for key in keys})

    def files(self, session: str) -> dict[str, bytes]:
        fields = self.client.hgetall(self.key(session))
        found = {name.decode(): data for name, data in fields.items()}
        return {name[2:]: data for name, data in found.items() if name.startswith("f:")}

    def write_file(self, session: str, name: str, content: bytes | None) -> None:
        if content is None:
            assert self.client.hdel(self.key(session), f"f:{name}")
        else:
            self.client.hset(self.key(session), f"f:{name}", content)

    def bring_forward(self, session: str) -> None:
        for id in self.checkpoints(session):
            data = self.client.hget(self.key(session), f"h:{id}")
            self.client.hset(self.key(session), f"h:f0{id[2:]}", data)
            self.client.hdel(self.key(session), f"h:{id}")

    def expire(self, session: str) -> None:
        assert self.client.pexpire(self.key(session), 1)
        while self.client.exists(self.key(session)):
            pass


class S3Store(Store):
    name = answer = "s3"
    expires = True
    ttl_days = 7

    @property
    def address(self) -> Address:
        return self.backing.s3

    def declared(self, **_: Any) -> str:
        return f"""{SESSION_SCOPE}backend:
  type: "s3"
  bucket_secret: "secrets/s3/sessions"
  region: "us-east-1"
  prefix: "sessions"
  ttl_days: {self.ttl_days}
"""

    def environment(self, address: Address) -> dict[str, str]:
        url = f"http://{address[0]}:{address[1]}"
        return {**AWS, "AWS_ENDPOINT_URL_S3": url, "SECRETS_S3_SESSIONS": BUCKET}

    @staticmethod
    def is_save(request: bytes) -> bool:
        return bool(re.search(rb"PUT \S*/snapshot_latest\.json", request))

    @cached_property
    def client(self) -> Any:
        return s3_client(self.address)

    def key(self, session: str, name: str = "snapshot_latest.json") -> str:
        return f"sessions/{quote(session, safe='')}/agent/{self.agent_id}/snapshots/{name}"

    def read(self, session: str) -> bytes | None:
        return self._get(self.key(session))

    def write(self, session: str, data: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=self.key(session), Body=data)

    def quarantined(self, session: str) -> list[bytes]:
        keys = self.keys(self.key(session, "set_aside/"))
        return [data for key in keys if (data := self._get(key)) is not None]

    def quarantine_names(self, session: str) -> list[str]:
        return self._ids(self.key(session, "set_aside/"))

    def checkpoints(self, session: str) -> list[str]:
        return self._ids(self.key(session, "immutable_history/"))

    def _ids(self, prefix: str) -> list[str]:
        return [key.rpartition("_")[2].removesuffix(".json") for key in self.keys(prefix)]

    def everything(self) -> str:
        mine = [key for key in self.keys("") if f"/agent/{self.agent_id}/" in key]
        return repr({key: self._get(key) for key in mine})

    def files(self, session: str) -> dict[str, bytes]:
        folder = self.key(session, "files/")
        return {key.removeprefix(folder): self._get(key) or b"" for key in self.keys(folder)}

    def write_file(self, session: str, name: str, content: bytes | None) -> None:
        key = self.key(session, f"files/{name}")
        if content is None:
            self.client.delete_object(Bucket=BUCKET, Key=key)
        else:
            self.client.put_object(Bucket=BUCKET, Key=key, Body=content)

    def bring_forward(self, session: str) -> None:
        folder = self.key(session, "immutable_history/")
        for key in self.keys(folder):
            ahead = f"{folder}snapshot_f0{key.removeprefix(folder)[11:]}"
            self.client.put_object(Bucket=BUCKET, Key=ahead, Body=self._get(key))
            self.client.delete_object(Bucket=BUCKET, Key=key)

    def expire(self, session: str) -> None:
        self.age(self.key(session), self.ttl_days + 1)

    def age(self, key: str, days: float) -> None:
        """Let an object be this old."""
        older = {"bucket": BUCKET, "key": key, "days": days}
        url = f"http://{self.address[0]}:{self.address[1]}/-/age"
        assert httpx.post(url, json=older).status_code == 200

    def conflict(self, times: int) -> None:
        """Let the next writes be refused, each to be tried again."""
        url = f"http://{self.address[0]}:{self.address[1]}/-/conflict"
        assert httpx.post(url, json={"times": times}).status_code == 200

    def _get(self, key: str) -> bytes | None:
        try:
            data: bytes = self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        except self.client.exceptions.NoSuchKey:
            return None
        return data

    def keys(self, prefix: str) -> list[str]:
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return [row["Key"] for row in found.get("Contents", [])]


class CustomStore(Store):
    """The endpoint of the render's own tests; looked into through the file that it keeps."""

    answer = "custom"

    @property
    def address(self) -> Address:
        return self.backing.endpoint

    def read(self, session: str) -> bytes | None:
        return self._rows(session).get("latest")

    def write(self, session: str, data: bytes) -> None:
        # Under an ETag of its own, as another program's write is.
        change = "UPDATE kept SET json = ?, etag = ? WHERE sid = ? AND scope = ? AND id = ?"
        row = (data.decode(), f'"{uuid.uuid4()}"', session, f"agent/{self.agent_id}", "latest")
        with closing(sqlite3.connect(self.backing.endpoint_data)) as data_base, data_base:
            assert data_base.execute(change, row).rowcount == 1

    def quarantined(self, session: str) -> list[bytes]:
        rows = self._rows(session, ".set-aside").values()
        return [str(json.loads(row)["data"]["state"]["set_aside"]).encode() for row in rows]

    def quarantine_names(self, session: str) -> list[str]:
        return list(self._rows(session, ".set-aside"))

    def checkpoints(self, session: str) -> list[str]:
        return [name for name in self._rows(session) if name not in ("latest", "manifest")]

    def everything(self) -> str:
        with closing(sqlite3.connect(self.backing.endpoint_data)) as data:
            return repr(list(data.iterdump()))

    def files(self, session: str) -> dict[str, bytes]:
        rows = "SELECT scope, json FROM kept WHERE sid = ? AND scope LIKE ? AND id = 'latest'"
        start = f"agent/{self.agent_id}.file-"
        with closing(sqlite3.connect(self.backing.endpoint_data)) as data:
            found = data.execute(rows, (session, f"{start}%")).fetchall()
        states = {scope.removeprefix(start): json.loads(it)["data"]["state"] for scope, it in found}
        return {name: b64decode(it["file_base64"]) for name, it in states.items() if it}

    def write_file(self, session: str, name: str, content: bytes | None) -> None:
        state = {} if content is None else {"file_base64": b64encode(content).decode()}
        change = "UPDATE kept SET json = ? WHERE sid = ? AND scope = ?"
        row = (
            json.dumps({"data": {"state": state}}),
            session,
            f"agent/{self.agent_id}.file-{name}",
        )
        with closing(sqlite3.connect(self.backing.endpoint_data)) as data_base, data_base:
            assert data_base.execute(change, row).rowcount == 1

    def file_rows(self, session: str) -> list[tuple[Any, ...]]:
        """The rows of the files of a session, for `insert`."""
        rows = "SELECT * FROM kept WHERE sid = ? AND scope LIKE '%.file-%'"
        with closing(sqlite3.connect(self.backing.endpoint_data)) as data:
            return data.execute(rows, (session,)).fetchall()

    def insert(self, rows: list[tuple[Any, ...]]) -> None:
        marks = ", ".join("?" * len(rows[0]))
        with closing(sqlite3.connect(self.backing.endpoint_data)) as data, data:
            data.executemany(f"INSERT INTO kept VALUES ({marks})", rows)

    def _rows(self, session: str, suffix: str = "") -> dict[str, bytes]:
        rows = "SELECT id, json FROM kept WHERE sid = ? AND scope = ? ORDER BY id"
        with closing(sqlite3.connect(self.backing.endpoint_data)) as data:
            found = data.execute(rows, (session, f"agent/{self.agent_id}{suffix}")).fetchall()
        return {name: text.encode() for name, text in found}


class RestStore(CustomStore):
    name = "custom-rest"

    def declared(self, attempts: int = 1, timeout_ms: int = PATIENT * 1000, **_: Any) -> str:
        return f"""{PROJECT_SCOPE}backend:
  type: "custom"
  transport:
    type: "rest-api"
    base_url: "env:SESSIONS_URL"
    timeout_ms: {timeout_ms}
{RETRY.format(attempts=attempts)}    credentials:
      scheme: "bearer-token"
      source: "env"
      name: "SESSIONS_TOKEN"
"""

    def environment(self, address: Address) -> dict[str, str]:
        url = f"http://{address[0]}:{address[1]}"
        return {"SESSIONS_URL": url, "SESSIONS_TOKEN": SENTINEL}

    @staticmethod
    def is_save(request: bytes) -> bool:
        is_post = re.search(rb"POST \S*/snapshots ", request)
        return bool(is_post and LATEST.search(request) and OF_FILE not in request)


class LambdaStore(CustomStore):
    name = "custom-lambda"

    def declared(self, attempts: int = 1, timeout_ms: int = PATIENT * 1000, **_: Any) -> str:
        return f"""{PROJECT_SCOPE}backend:
  type: "custom"
  transport:
    type: "lambda"
    function_arn: "{FUNCTION}"
    invocation_type: "RequestResponse"
    timeout_ms: {timeout_ms}
{RETRY.format(attempts=attempts)}    credentials:
      scheme: "iam-role"
"""

    def environment(self, address: Address) -> dict[str, str]:
        return {**AWS, "AWS_ENDPOINT_URL_LAMBDA": f"http://{address[0]}:{address[1]}"}

    @staticmethod
    def is_save(request: bytes) -> bool:
        is_save = re.search(rb'"operation": ?"save_snapshot"', request)
        return bool(is_save and LATEST.search(request) and OF_FILE not in request)


KINDS: dict[str, type[Store]] = {
    kind.name: kind for kind in (ValkeyStore, S3Store, RestStore, LambdaStore)
}
