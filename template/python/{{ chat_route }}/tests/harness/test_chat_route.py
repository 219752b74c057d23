"""The route for useChat: a turn is committed, or an error part says that it was not saved."""

import json
from typing import Any

from client import Client
from script import Fail, Reply, ToolCall

ROUTE = "/api/chat"


async def say(client: Client, id: str, text: str, **fields: object) -> list[Any]:
    """Send the message with this id, as useChat does, and return the parts of the reply."""
    message = {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}
    body = {"id": "s", "messages": [message], "trigger": "submit-message", **fields}
    response = await client.post(body, path=ROUTE)
    assert response.status == 200, response.text
    assert response.session_id == "s"
    *parts, done, end = response.text.split("\n\n")
    assert done == "data: [DONE]"
    assert end == ""
    return [json.loads(part.removeprefix("data: ")) for part in parts]


async def history(client: Client) -> list[Any]:
    """Return the messages of the session, in the form of useChat."""
    messages: list[Any] = (await client.get(f"{ROUTE}?id=s")).body
    return messages


def turn_of(parts: list[Any]) -> int:
    """Return the number of the turn that the parts are of."""
    return int(parts[-1]["messageMetadata"]["turn"])


def texts_of(messages: list[Any]) -> list[str]:
    return [message["parts"][0]["text"] for message in messages]


async def test_a_turn_is_streamed_in_parts() -> None:
    call = ToolCall("word_count", {"text": "a b"})
    client = Client([Reply("Counting. "), call], Reply("Two."))
    parts = await say(client, "first", "Count.")
    types = [part["type"] for part in parts]
    assert types[:4] == ["start", "text-start", "text-delta", "text-end"]
    assert types[-4:] == ["text-start", "text-delta", "text-end", "finish"]
    assert len(types[4:-4]) == 2
    assert all(type.startswith("tool-") for type in types[4:-4])
    assert turn_of(parts) == 1


async def test_the_history_has_the_messages_of_a_turn() -> None:
    call = ToolCall("word_count", {"text": "a b"})
    client = Client([Reply("Counting. "), call], Reply("Two."))
    parts = await say(client, "first", "Count.")
    prompt, reply = await history(client)
    assert prompt["id"] == "first"
    assert prompt["parts"] == [{"type": "text", "text": "Count."}]
    assert reply["id"] == parts[0]["messageId"]
    assert [part["type"] for part in reply["parts"]] == ["text", "dynamic-tool", "text"]


async def test_a_failed_turn_ends_with_an_error_part_and_is_not_saved() -> None:
    client = Client([Reply("half"), Fail(ValueError("secret"))])
    parts = await say(client, "first", "Hello")
    assert parts[-1] == {
        "type": "error",
        "errorText": "model_failed: The model failed; this turn was not saved.",
    }
    assert await history(client) == []


async def test_a_message_can_be_sent_again_after_a_failure() -> None:
    client = Client([Reply("half"), Fail(ValueError("secret"))])
    await say(client, "first", "Hello")
    assert turn_of(await say(client, "first", "Hello")) == 1
    assert turn_of(await say(client, "first", "Hello")) == 1
    assert len(await history(client)) == 2


async def client_with_three_turns() -> Client:
    """Return a client after the turns "first", "second" and "third"."""
    client = Client(*[Reply(f"reply {number}") for number in range(1, 6)])
    for turns, id in enumerate(("first", "second", "third")):
        await say(client, id, id, seen=turns)
    return client


async def test_an_edited_message_replaces_its_turn_and_all_later_turns() -> None:
    client = await client_with_three_turns()
    await say(client, "second", "edited", messageId="second", seen=3)
    assert texts_of(await history(client)) == ["first", "reply 1", "edited", "reply 4"]


async def test_an_outdated_page_cannot_regenerate() -> None:
    client = await client_with_three_turns()
    await say(client, "second", "edited", messageId="second", seen=3)
    parts = await say(client, "first", "first", trigger="regenerate-message", seen=3)
    assert parts[-1]["errorText"].startswith("session_conflict: ")
    assert texts_of(await history(client)) == ["first", "reply 1", "edited", "reply 4"]


async def test_a_regenerated_reply_replaces_its_turn_and_all_later_turns() -> None:
    client = await client_with_three_turns()
    await say(client, "first", "first", trigger="regenerate-message", seen=3)
    messages = await history(client)
    assert [message["id"] for message in messages] == ["first", "first-reply"]
