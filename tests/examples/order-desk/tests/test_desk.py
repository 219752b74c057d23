"""The order desk over HTTP, with its capabilities and a model that plays a script."""

import json
from typing import Any
from unittest.mock import patch

import pytest
from client import EVENTS, Client, open_client
from script import Fail, Reply, ToolCall
from scripted_model import ScriptedModel

from app.carrier import sign
from app.orders import ORDERS

SECRET = "a-secret-for-tests"
EVENT = json.dumps({"order": "1002", "state": "sent"}).encode()
CSV = "id,customer,item,price,state\n1004,bob,a tray,12.00 EUR,packed\n"


async def test_the_progress_of_a_tool_is_streamed() -> None:
    async with open_client(ToolCall("track_parcels", {}), Reply("Here they are.")) as client:
        response = await client.say(actor="ada", headers=EVENTS)
    progress = [line for line in response.text.splitlines() if '"progress"' in line]
    assert [json.loads(line.removeprefix("data: "))["value"] for line in progress] == [
        {"parcels": 1, "of": 2},
        {"parcels": 2, "of": 2},
    ]


class Potter(ScriptedModel):
    """A model whose provider counts tokens."""

    async def stream(self, *words: Any, **options: Any) -> Any:
        async for event in super().stream(*words, **options):
            yield event
        usage = {"inputTokens": 9000, "outputTokens": 1000, "totalTokens": 10_000}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


async def test_the_tokens_of_the_potter_count_for_the_customer() -> None:
    script = ToolCall("ask_potter", {"question": "How do I clean it?"}), Reply("With soda.")
    potter = Potter([Reply("Use soda.")])
    with patch("app.potter.build_model", return_value=potter):
        async with open_client(*script, actor_tokens_per_day=10_000) as client:
            assert (await client.say(actor="ada")).reply == "With soda."
            assert (await client.say(actor="ada")).error == "rate_limited"
            assert (await client.say(actor="bob")).status == 200


async def test_an_event_with_the_signature_of_the_carrier_moves_a_parcel() -> None:
    async with open_client(carrier_secret=SECRET, api_token="only-the-carrier-has-none") as client:
        headers = {"X-Signature": sign(EVENT, SECRET)}
        response = await client.post(EVENT, path="/parcels", headers=headers)
        assert response.status == 204
        assert (await ORDERS.find("1002", "ada")).state == "sent"


@pytest.mark.parametrize("signature", ["", "é", sign(EVENT, "another secret")])
async def test_an_event_without_it_changes_nothing(signature: str) -> None:
    async with open_client(carrier_secret=SECRET) as client:
        headers = {"X-Signature": signature}
        response = await client.post(EVENT, path="/parcels", headers=headers)
        assert response.error == "unauthorized"
        assert (await ORDERS.find("1002", "ada")).state == "packed"


async def upload(client: Client, text: str, actor: str) -> Any:
    headers = {"Content-Type": "text/csv", "Origin": "http://127.0.0.1:8080"}
    headers["X-Amzn-Bedrock-AgentCore-Runtime-User-Id"] = actor
    response = await client.post(text.encode(), path="/import", headers=headers)
    return response.body


async def test_the_staff_import_orders_from_a_page() -> None:
    async with open_client(staff=("carol",)) as client:
        assert await upload(client, CSV, "carol") == {"added": 1}
        assert (await ORDERS.find("1004", "bob")).item == "a tray"


async def test_nothing_else_is_imported() -> None:
    async with open_client(staff=("carol",)) as client:
        for text, actor, error in [
            (CSV, "ada", "session_forbidden"),
            ("id,name\n1,x\n", "carol", "invalid_request"),
            ("x" * 100_001, "carol", "payload_too_large"),
        ]:
            assert (await upload(client, text, actor))["error"]["type"] == error


async def test_a_complaint_becomes_a_value_and_leaves_no_session() -> None:
    facts = {"order_id": "1001", "wants_refund": True, "summary": "The teapot leaks."}
    async with open_client(ToolCall("Complaint", facts)) as client:
        mail = b"The teapot of order 1001 leaks. I want my money back."
        actor = "X-Amzn-Bedrock-AgentCore-Runtime-User-Id"
        headers = {"Content-Type": "text/plain", actor: "ada"}
        assert (await client.post(mail, path="/complaints", headers=headers)).body == facts
        assert await client.runtime.sessions.list("ada") == []


async def test_outcomes_are_counted_as_they_are() -> None:
    async with open_client(Reply("Hello"), Fail(ValueError("secret"))) as client:
        for _ in range(2):
            await client.say(actor="ada")
        lines = (await client.get("/outcomes")).text.splitlines()
    assert sorted(lines) == [
        'turns_total{outcome="committed"} 1',
        'turns_total{outcome="model_failed"} 1',
    ]
