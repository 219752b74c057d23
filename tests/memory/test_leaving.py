"""SIGTERM: what waits to be recorded is recorded within the grace time, for the next process."""

import re
from pathlib import Path

import pytest

from tests.conformance.chat import Chat
from tests.conformance.server import Server
from tests.conformance.targets import TARGETS
from tests.memory.agents import AGENT, HUNG, Agent, Home, of, with_memory
from tests.stores.servers import wait_for
from tests.stores.stores import Backing, RestStore

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


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("name", [target.name for target in TARGETS])
def test_a_turn_is_recorded_before_an_own_store_of_sessions_is_closed(
    name: str, tmp_path: Path, backing: Backing
) -> None:
    (target,) = (target for target in TARGETS if target.name == name)
    home, store = Home(with_memory(target, "custom"), tmp_path), RestStore(backing, AGENT)
    text = home.sessions.read_text()
    declared = re.sub(r"(?s)\nscope:.*?(?=\nwriteback:)", f"\n{store.declared()}", text)
    home.sessions.write_text(declared)
    reached, short, long = store.environment(store.address), f"of-{name}", f"{name:x<120}"
    for session in (short, long):
        words = ("chat", "--actor", "robin", "--session", session)
        done = home.run(*words, typed=f"My cat is called {session}.\n", **reached)
        assert (done.returncode, "not recorded" in done.stderr) == (0, False), done
        assert f"My cat is called {session}." in home.local()
    # The memory has a short name of the session, and the store cannot list its sessions.
    done = home.run("forget", "--actor", "robin", **reached)
    assert done.returncode == 1, done
    assert f"a session whose id begins with {long[:60]}: " in done.stdout + done.stderr
    assert "My cat" not in home.local()
    assert store.read(short) is None
    assert store.read(long)
