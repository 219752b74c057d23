"""SIGTERM: what waits to be recorded is recorded within the grace time, for the next process."""

import time

import pytest

from tests.agentcore.calls import Call
from tests.conformance.chat import Chat
from tests.conformance.server import Server
from tests.memory.agents import SLACK, Agent, of

GRACE = 8


def test_nothing_is_lost_when_a_process_ends(resting: Agent, who: str) -> None:
    first = resting.fresh(SHUTDOWN_GRACE_SECONDS=GRACE)
    second = resting.fresh(SHUTDOWN_GRACE_SECONDS=GRACE)
    chat = Chat(first, resting.provider, actor=who)
    resting.service.faults.slow("CreateEvent", 1.0, where=of(resting.notes))
    resting.service.faults.hang("CreateEvent", where=of(resting.team))
    chat.say("My boat is called Otto.")
    first.signal()
    assert_ended(first)
    # The next process recalls it, and ends while the service is down.
    chat = Chat(second, resting.provider, actor=who)
    question = "What is my boat called?"
    chat.say(question)
    assert "My boat is called Otto." in resting.shown(chat, question)
    calls: list[Call] = resting.service.calls.of()
    resting.down()
    chat.say("My dog is called Rex.")
    second.signal()
    time.sleep(1)
    resting.up()
    assert_ended(second)
    assert len(resting.service.calls.of()) > len(calls)
    for memory in (resting.notes, resting.team):
        said = [text.partition(" canary")[0] for role, text in resting.said(memory, who)]
        assert said[::2] == ["My boat is called Otto.", question, "My dog is called Rex."]


def assert_ended(server: Server) -> None:
    assert server.exit_code(within=GRACE + SLACK) == 0
    assert "not recorded" not in server.log


@pytest.mark.usual("strands-python", "vercel-typescript")
def test_a_service_that_does_not_come_back_costs_the_grace_time(resting: Agent, who: str) -> None:
    server = resting.fresh(SHUTDOWN_GRACE_SECONDS=2)
    chat = Chat(server, resting.provider, actor=who)
    held = resting.service.faults.hang("CreateEvent", times=None)
    chat.say("One.")
    held.wait_reached()
    started = time.monotonic()
    server.signal()
    assert server.exit_code(within=2 + SLACK) == 0
    assert time.monotonic() - started < 2 + SLACK
    lines = [line for line in server.log.splitlines() if "turns not recorded: 1" in line]
    assert len(lines) == 2, "a line for each memory"
    assert all("ERROR" in line and who not in line for line in lines)
