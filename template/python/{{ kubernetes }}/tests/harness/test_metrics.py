"""An autoscaler reads the number of running and waiting turns."""

import asyncio

from client import Client
from script import Reply, Wait


async def test_metrics_need_no_token_and_count_turns() -> None:
    response = await Client(api_token="sesame").get("/metrics")
    assert response.status == 200
    assert response.text.splitlines()[-1] == "agent_turns 0"


async def test_a_running_turn_is_counted() -> None:
    answer = Wait(asyncio.Event())
    client = Client([answer, Reply("done")])
    running = client.start()
    await answer.reached.wait()
    response = await client.get("/metrics")
    assert response.text.splitlines()[-1] == "agent_turns 1"
    answer.event.set()
    await running.response()
