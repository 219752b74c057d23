"""A custom endpoint: what it is sent, and what its answers come to."""

import json
from typing import Any

import pytest
from endpoints import ARN, ID, NULL, OK, PLACE, SENT, SNAPSHOT, scripted, serving, set_aws, store
from reference_endpoint import Endpoint

from app.memory.backends import Unavailable
from app.memory.custom_store import CustomStore
from app.memory.errors import StoreError
from app.memory.options import Options
from app.memory.stored import Cached
from app.settings import Settings

OTHER = json.dumps(SNAPSHOT | {"created_at": "2026-05-01T10:00:01Z"}).encode()


async def use(custom: CustomStore) -> None:
    """Use each of the six operations once."""
    assert await custom.save("s", json.dumps(SNAPSHOT).encode(), None, ID) == '"1"'
    assert await custom.load("s", checkpoint=ID) is None
    assert await custom.checkpoints("s") == []
    assert await custom.load("s") is None
    await custom.end("s")
    await custom.close()


OPERATIONS: list[Any] = [
    ("save_snapshot", {"snapshot_id": "latest", "is_latest": True, "snapshot": SENT}),
    ("save_manifest", {"manifest": {"schema_version": "1.0", "updated_at": "then"}}),
    ("save_snapshot", {"snapshot_id": ID, "is_latest": False, "snapshot": SENT}),
    ("load_snapshot", {"snapshot_id": ID}),
    ("list_snapshot_ids", {"limit": 1000, "start_after": None}),
    ("load_snapshot", {"snapshot_id": "latest"}),
]
EMPTY: Any = (200, {}, b'{"snapshot_ids": []}')


async def test_the_six_operations_over_rest(monkeypatch: Any) -> None:
    monkeypatch.setattr("app.memory.operations.now", lambda: "then")
    with scripted(OK, OK, OK, NULL, EMPTY, (404, {}, b"no"), OK) as (url, asked):
        await use(store(f"{url}/v1"))
    bodies = [{"operation": name} | PLACE | more for name, more in OPERATIONS]
    assert [ask[3] for ask in asked] == [*bodies[:3], None, None, None, None]
    assert [f"{method} {path}" for method, path, *_ in asked] == [
        "POST /v1/snapshots",
        "POST /v1/manifests",
        "POST /v1/snapshots",
        f"GET /v1/snapshots?session_id=s&snapshot_id={ID}&scope_type=agent&scope_id=a",
        "GET /v1/snapshots/list?session_id=s&limit=1000&scope_type=agent&scope_id=a",
        "GET /v1/snapshots?session_id=s&snapshot_id=latest&scope_type=agent&scope_id=a",
        "DELETE /v1/sessions/s",
    ]
    assert [ask[2]["If-None-Match"] for ask in asked[:3]] == ["*", None, None]


async def test_the_six_operations_over_lambda(monkeypatch: Any) -> None:
    monkeypatch.setattr("app.memory.operations.now", lambda: "then")
    saved: Any = (200, {}, b'{"ok": true, "etag": "\\"1\\""}')
    with scripted(saved, saved, saved, NULL, EMPTY, NULL, saved) as (url, asked):
        set_aws(monkeypatch, url)
        await use(store(ARN))
    bodies = [{"operation": name} | PLACE | more for name, more in OPERATIONS]
    bodies[0]["if_none_match"] = "*"
    bodies.append({"operation": "delete_session", "session_id": "s"})
    assert [ask[3] for ask in asked] == bodies


REFUSED: list[Any] = [
    (302, {"Location": "http://127.0.0.1:1/"}, b""),
    (200, {"Content-Type": "text/html"}, b"<html>"),
    (200, {"Content-Type": "application/json"}, b""),
    (204, {}, b""),
    (304, {}, b""),
    (401, {}, b"secret"),
    (500, {}, b"secret"),
    (200, {}, b"[1]"),
    (200, {}, b"NaN"),
    (200, {}, b"[" * 100_000),
    (200, {}, b'"' + b"x" * 900_000),
    (200, {"Content-Length": 99}, b"{}"),
    (200, {"ETag": "*"}, b"{}"),
    (200, {"Content-Encoding": "gzip"}, b"{}"),
]


@pytest.mark.parametrize("answer", REFUSED, ids=lambda answer: str(answer)[:40])
async def test_no_answer_to_a_load_but_a_snapshot_or_null(answer: Any) -> None:
    with scripted(answer) as (url, _), pytest.raises(Unavailable) as raised:
        await store(url.replace("//", "//user:password@"), timeout_ms=300).load("s")
    assert not {"password", "secret"} & set(str(raised.value).replace("@", ":").split(":"))


async def test_retries_credentials_and_what_is_certain(monkeypatch: Any) -> None:
    monkeypatch.setenv("TOKEN", "t")
    retry = {"max_attempts": 2, "on_status": [503], "backoff_ms": 1}
    bearer = {"scheme": "bearer-token", "source": "env", "name": "TOKEN"}
    with scripted((503, {}, b""), NULL, (503, {}, b""), (400, {}, b"")) as (url, asked):
        custom = store(url, bearer, retry_policy=retry)
        assert await custom.load("s") is None
        with pytest.raises(Unavailable, match=r"HTTP 400, attempt 2") as raised:
            await custom.save("s", json.dumps(SNAPSHOT).encode(), None)
        assert not raised.value.is_certain  # the first attempt may have done it
        assert {ask[2]["Authorization"] for ask in asked} == {"Bearer t"}
    with scripted(NULL) as (url, asked):
        key = bearer | {"scheme": "api-key", "header": "X-Key"}
        await store(url, key).load("s")
        assert asked[0][2]["X-Key"] == "t"
    with pytest.raises(Unavailable, match="connection refused") as raised:
        await store("http://127.0.0.1:1").load("s")
    assert raised.value.is_certain


@pytest.mark.parametrize("becomes", ["stored", "another", "unknown"])
async def test_a_save_whose_answer_is_lost_is_looked_for(becomes: str, monkeypatch: Any) -> None:
    async def fail(*_: Any) -> None:
        raise Unavailable("no answer")

    async def lose(*values: Any) -> None:
        await save(values[0], OTHER if becomes == "another" else values[1], values[2])
        if becomes == "unknown":
            monkeypatch.setattr(custom, "load", fail)
        await fail()

    with serving(Endpoint()) as url:
        custom = store(url)
        save, cached = custom.save, Cached(Settings(), Options(checkpoints=1), custom)
        assert await cached.load("s") is None
        monkeypatch.setattr(custom, "save", lose)
        if becomes == "stored":
            await cached.save("s", json.dumps(SNAPSHOT).encode())
        else:
            with pytest.raises(StoreError, match="session store"):
                await cached.save("s", json.dumps(SNAPSHOT).encode())
        assert len(await custom.checkpoints("s")) == (becomes == "stored")


async def test_the_reference_endpoint_bounds_the_checkpoints() -> None:
    ask: Any = {"operation": "save_snapshot", **PLACE, "snapshot": {}}
    with Endpoint() as endpoint:
        ids = [f"{ID[:-4]}{number:04d}" for number in range(1003)]
        for id in ["latest", *ids]:
            assert endpoint.do(ask | {"snapshot_id": id})[0] == 200
        status, found, _ = endpoint.do(ask | {"operation": "list_snapshot_ids", "limit": 1000})
        assert (status, json.loads(found)) == (200, {"snapshot_ids": ids[3:]})
        assert endpoint.do(ask | {"operation": "load_snapshot", "snapshot_id": "latest"})[1] == "{}"
