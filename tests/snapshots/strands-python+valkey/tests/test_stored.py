"""A turn with a store: kept beyond a restart, never merged, and never lost in silence."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock, patch

import pytest
from reference_endpoint import Endpoint
from test_turn import Client

from app.memory.models import Collection
from app.memory.options import Options
from app.memory.secrets import Secrets
from app.memory.stored import Cached
from app.memory.stores import build_backend
from app.sessions import Sessions

NAMES = {"spec_version": "1.2", "collection_id": "sessions", "version": "1.0.0"}
META = {"name": "Sessions", "description": "Keeps sessions.", "owner": "tests"}
RULES = {"status": "active", "scope": {"lifetime": "project"}, "writeback": {"enabled": True}}
# What happens to a snapshot that is stored.
DAMAGES: dict[str, Any] = {
    "is truncated": lambda kept: json.dumps(kept)[:99],
    "has another version": lambda kept: json.dumps(kept | {"schema_version": "2.0"}),
    "has no messages": lambda kept: json.dumps(kept | {"data": {"messages": []}}),
    "has no turn": lambda kept: json.dumps(kept | {"app_data": kept["app_data"] | {"turn": 0}}),
    "is too large": lambda kept: json.dumps(kept | {"more": "x" * 9000}),
}
# What the endpoint does: nothing before its connection breaks, or nothing after, or all late.
FAILURES = {"does not do it": (1, 0, 0), "loses its answer": (0, 1, 0), "is slow": (0, 0, 1.2)}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        server.handle_error = Mock()  # type: ignore[method-assign]
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield server
        server.shutdown()


def replica(endpoint: Any, *script: Any, is_writable: bool = True, timeout_ms: int = 5000) -> Any:
    """An instance of the agent, as another process would be."""
    client: Any = Client(*script)
    url, none = f"http://127.0.0.1:{endpoint.server_port}", {"scheme": "none"}
    transport = {"type": "rest-api", "base_url": url, "credentials": none, "timeout_ms": timeout_ms}
    more: Any = {"meta": META, "backend": {"type": "custom", "transport": transport}}
    collection, options = Collection.model_validate(NAMES | RULES | more), Options(3, 8000)
    client.store = build_backend(collection, "agent", options, Secrets(options))
    client.copies, settings = Mock(), client.parts.settings
    more = {"is_writable": is_writable, "mirrors": [client.copies]}
    client.parts.sessions = Sessions(settings, Cached(settings, options, client.store, **more))
    return client


def failing(endpoint: Any, failure: Any) -> Any:
    """While this is entered, the endpoint fails."""
    (before, after, seconds), do = failure, endpoint.do

    def fail(ask: Any) -> Any:
        time.sleep(seconds)
        done = None if before else do(ask)
        if before or after:
            raise ConnectionError
        return done

    return patch.object(endpoint, "do", fail)


async def test_a_session_goes_on_after_a_restart_and_on_another_replica(endpoint: Any) -> None:
    one, two = replica(endpoint), replica(endpoint)
    assert [await it.say("s", str(n)) for n, it in enumerate([one, two, one, one])] == list("1234")
    restarted = replica(endpoint)
    assert await restarted.say("s", "4") == "5"
    assert restarted.model.calls == ["0 ok 1 ok 2 ok 3 ok 4"]
    assert await two.say("s!") == "end"
    assert [await one.say("s"), await two.say("s")] == ["1", "2"]
    assert [name for name, *_ in two.copies.method_calls] == ["put", "end", "put"]


@pytest.mark.parametrize(("address", "outcome"), [("s", "2"), ("s!", "end")])
async def test_a_turn_is_refused_when_meanwhile_another_replica_had(
    address: str, outcome: str, endpoint: Any
) -> None:
    slow, fast = replica(endpoint, ["a"], [0.3, "b"]), replica(endpoint)
    assert await slow.say("s") == "1"
    late = asyncio.create_task(slow.say("s", "2"))
    await asyncio.sleep(0.1)
    assert [await fast.say(address, "x"), await late] == [outcome, "session_conflict"]
    assert await slow.say("s", "y") == {"2": "3", "end": "1"}[outcome]
    assert slow.model.calls[-1] == {"2": "hi a x ok y", "end": "y"}[outcome]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_is_set_aside_what(damage: Any, endpoint: Any, caplog: Any) -> None:
    one, two = replica(endpoint), replica(endpoint)
    assert await one.say("s") == "1"
    ((kept,),) = endpoint._db.execute("SELECT json FROM kept WHERE id = 'latest'")
    bad = damage(json.loads(kept))
    endpoint._db.execute("UPDATE kept SET json = ?, etag = 'e' WHERE id = 'latest'", [bad])
    assert [await two.say("s"), two.model.calls] == ["session_corrupt", []]
    (where,) = await one.store.asides("s")
    assert f"session s: what was stored cannot be read; it is now {where}" in caplog.text
    assert [await one.say("s"), await two.say("s")] == ["1", "2"]


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_turn_is_whole_or_absent_when_the_store(failure: Any, endpoint: Any) -> None:
    client = replica(endpoint, ["a"], [0.2, "b"], timeout_ms=1000 if failure[2] else 5000)
    assert await client.say("s") == "1"
    with failing(endpoint, failure):  # at load: then the model is not asked
        assert [await client.say("s"), client.model.calls] == ["store_unavailable", ["hi"]]
    turn = asyncio.create_task(client.say("s#k", "2"))
    await asyncio.sleep(0.1)
    with failing(endpoint, failure):  # at save
        assert await turn == "store_unavailable"
        await asyncio.sleep(failure[2])
    assert [await client.say("s#k", "2"), await client.say("s", "3")] == ["2", "3"]
    assert client.model.calls[-1] in {"hi a 2 b 3", "hi a 2 ok 3"}


async def test_a_session_that_is_too_large_stays_as_it_was(endpoint: Any) -> None:
    client = replica(endpoint, ["a"], ["x" * 9000])
    assert [await client.say("s") for _ in "123"] == ["1", "session_too_large", "2"]


async def test_a_client_that_leaves_during_the_save_comes_too_late(endpoint: Any) -> None:
    client = replica(endpoint)
    save = client.store.save

    async def slow(*values: Any) -> Any:
        await asyncio.sleep(0.3)
        return await save(*values)

    client.store.save = slow
    assert await client.say("s", patience=0.2) == "1"
    assert await replica(endpoint).say("s") == "2"


async def test_sessions_only_begin_in_a_store_that_is_read_only(endpoint: Any) -> None:
    assert await replica(endpoint).say("s") == "1"
    client = replica(endpoint, is_writable=False)
    said = [await client.say(it) for it in ("s", "s", "s!", "s", "new!", "new")]
    assert said == ["2", "3", "end", "1", "end", "1"]
    assert [name for name, *_ in client.copies.method_calls] == ["put", "put", "end", "put", "put"]
    assert await replica(endpoint).say("s") == "2"
