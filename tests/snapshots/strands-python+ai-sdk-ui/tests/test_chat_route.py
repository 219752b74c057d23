"""The route for useChat: a turn is committed, or its error part says that nothing was kept."""

import json
from typing import Any

import pytest
from client import Client
from starlette.types import ASGIApp, Receive, Scope, Send
from test_turn import CALL

from app.runtime import Runtime
from app.server import create_app

ROUTE, HEADERS = "/api/chat", {"Host": "127.0.0.1:8080"}


@pytest.fixture(autouse=True)
def with_route(monkeypatch: pytest.MonkeyPatch) -> None:
    def create(runtime: Runtime) -> ASGIApp:
        app = create_app(runtime)

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            path, _, query = scope["path"].partition("?")
            await app({**scope, "path": path, "query_string": query.encode()}, receive, send)

        return respond

    monkeypatch.setattr("client.create_app", create)


async def say(client: Client, id: str, text: str, **more: object) -> list[Any]:
    """Return the parts of the reply."""
    message = {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}
    body = json.dumps({"id": "s", "messages": [message], "trigger": "submit-message", **more})
    status, session, events = await client.send(f"POST {ROUTE}", HEADERS, body.encode())
    assert (status, session) == (200, "s")
    *parts, done, end = [event.removeprefix("data: ") for event in events.split("\n\n")]
    assert (done, end) == ("[DONE]", "")
    return [json.loads(part) for part in parts]


async def history(client: Client) -> list[Any]:
    _, _, text = await client.send(f"GET {ROUTE}?id=s", HEADERS, b"")
    messages: list[Any] = json.loads(text)
    return messages


async def test_a_turn_comes_in_parts_and_again_as_history() -> None:
    client = Client(CALL, ["two"])
    parts = await say(client, "m1", "count")
    text = ["text-start", "text-delta", "text-end"]
    kinds = [part["type"] for part in parts if not part["type"].startswith("tool-")]
    assert (kinds, len(parts)) == (["start", *text, *text, "finish"], 10)
    assert parts[-1]["messageMetadata"]["turn"] == 1
    asked, replied = await history(client)
    assert (asked["id"], asked["parts"]) == ("m1", [{"type": "text", "text": "count"}])
    assert replied["id"] == parts[0]["messageId"]
    assert [part["type"] for part in replied["parts"]] == ["text", "dynamic-tool", "text"]


async def test_a_failed_turn_ends_in_an_error_part_and_can_be_tried_again() -> None:
    client = Client(["half", ValueError("secret")])
    text = "model_failed: The model failed; this turn was not kept."
    assert (await say(client, "m1", "hi"))[-1] == {"type": "error", "errorText": text}
    assert await history(client) == []
    assert (await say(client, "m1", "hi"))[-1]["messageMetadata"]["turn"] == 1
    assert (await say(client, "m1", "hi"))[-1]["messageMetadata"]["turn"] == 1
    assert len(await history(client)) == 2


async def test_a_message_that_is_sent_again_takes_the_place_of_its_turn() -> None:
    client = Client(*[[f"reply {number}"] for number in range(1, 6)])
    for id in ("m1", "m2", "m3"):
        await say(client, id, id, seen=len(await history(client)) // 2)
    await say(client, "m2", "edited", messageId="m2", seen=3)
    refused = (await say(client, "m1", "m1", trigger="regenerate-message", seen=3))[-1]
    assert refused["errorText"].startswith("session_conflict: ")
    shown = [message["parts"][0]["text"] for message in await history(client)]
    assert shown == ["m1", "reply 1", "edited", "reply 4"]
    await say(client, "m1", "m1", trigger="regenerate-message", seen=2)
    assert [message["id"] for message in await history(client)] == ["m1", "m1-reply"]
