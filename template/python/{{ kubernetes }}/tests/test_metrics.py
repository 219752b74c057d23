"""An autoscaler sees how many turns there are."""

from client import JSON, Client


async def test_metrics_need_no_token_and_count_turns() -> None:
    client = Client(api_token="sesame")
    status, _, text = await client.send("GET /metrics", JSON, b"")
    assert (status, text.splitlines()[-1]) == (200, "agent_turns 0")
