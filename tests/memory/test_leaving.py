"""SIGTERM: what waits to be recorded is recorded within the grace time, for the next process."""

import pytest

from tests.conformance.chat import Chat
from tests.conformance.server import Server
from tests.memory.agents import HUNG, Agent, of
from tests.stores.servers import wait_for

GRACE = 60  # more than is needed: what waits is recorded long before
WRITE = "CreateEvent"


@pytest.mark.usual("strands-python-valkey", "vercel-typescript-alone")
def test_nothing_is_lost_when_a_process_ends(resting: Agent, who: str) -> None:
    first = resting.fresh(SHUTDOWN_GRACE_SECONDS=GRACE)
    second = resting.fresh(SHUTDOWN_GRACE_SECONDS=GRACE)
    faults, calls = resting.service.faults, resting.service.calls
    chat = Chat(first, resting.provider, actor=who)
    faults.slow(WRITE, 0.5, where=of(resting.notes))
    hanging = faults.hang(WRITE, where=of(resting.team))
    chat.say("My boat is called Otto.")
    hanging.wait_reached()
    first.signal()
    assert_ended(first)
    # The next process recalls it, and is told to end while the service fails.
    chat = Chat(second, resting.provider, actor=who)
    question = "What is my boat called?"
    chat.say(question)
    assert "My boat is called Otto." in resting.shown(chat, question)
    faults.fail(WRITE, times=None)
    failed = calls.count(WRITE)
    chat.say("My dog is called Rex.")
    wait_for("an attempt", lambda: calls.count(WRITE) > failed)
    second.signal()
    failed = calls.count(WRITE)
    wait_for("an attempt of a process that ends", lambda: calls.count(WRITE) > failed + 2)
    faults.clear()
    assert_ended(second)
    for memory in (resting.notes, resting.team):
        said = [text.partition(" canary")[0] for role, text in resting.said(memory, who)]
        assert said[::2] == ["My boat is called Otto.", question, "My dog is called Rex."]


def assert_ended(server: Server) -> None:
    assert server.exit_code(within=HUNG) == 0
    assert "not recorded" not in server.log


@pytest.mark.usual("vercel-python-valkey", "strands-typescript-alone")
def test_a_service_that_does_not_come_back_costs_the_grace_time(resting: Agent, who: str) -> None:
    server = resting.fresh(SHUTDOWN_GRACE_SECONDS=1)
    chat = Chat(server, resting.provider, actor=who)
    held = resting.service.faults.hang(WRITE, times=None)
    chat.say("One.")
    held.wait_reached()
    server.signal()
    assert server.exit_code(within=HUNG) == 0, "it ends, though the service never answers"
    lines = [line for line in server.log.splitlines() if "turns not recorded: 1" in line]
    assert len(lines) == 2, "a line for each memory"
    assert all("ERROR" in line and who not in line for line in lines)
