"""Tool calls wait for a person, and the turn goes on with the answers."""

import json
from typing import Any
from unittest.mock import patch

import pytest
from client import JSON, POST, SESSION, Client
from gate import GATE


@pytest.fixture(autouse=True)
def gate() -> Any:
    with patch(GATE[0], GATE[1], create=True):
        yield


async def ask(client: Client, body: object) -> Any:
    _, _, text = await client.send(POST, {**JSON, SESSION: "s"}, json.dumps(body).encode())
    return json.loads(text)


async def test_an_approved_call_runs_once_and_the_turn_is_committed() -> None:
    client = Client(["Well. ", ("call",)], ["Done."])
    waiting = await ask(client, {"prompt": "1"})
    (call,) = waiting["waiting"]
    assert (waiting["turn"], call["tool"]) == (1, "word_count")
    wrong = await ask(client, {"approve": ["other"]})
    assert wrong["error"]["type"] == "not_waiting" and call["id"] in wrong["error"]["message"]
    reply = await ask(client, {"approve": [call["id"]]})
    assert (reply["turn"], reply["reply"]) == (1, "Well. Done.")
    assert (await ask(client, {"approve": [call["id"]]}))["error"]["type"] == "not_waiting"
    assert client.model.calls == ["1", "1 Well.  (toolUse) (toolResult)"]


async def test_a_call_is_denied_and_a_new_prompt_drops_what_waits() -> None:
    client = Client([("call",)], ["No."], [("call",)])
    (call,) = (await ask(client, {"prompt": "1"}))["waiting"]
    denial = {"deny": [{"id": call["id"], "reason": "Not today."}]}
    assert (await ask(client, denial))["reply"] == "No."
    assert "Not today." in str(await client.runtime.sessions.store.load("s"))
    assert "waiting" in await ask(client, {"prompt": "2"})
    assert (await ask(client, {"prompt": "3"}))["dropped"] is True
    assert client.model.calls[-1] == "1 (toolUse) (toolResult) No. 3"
