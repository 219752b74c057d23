"""When turns are recorded: an owner's trigger, its longest wait, the ends of sessions, a filter."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.chat import Chat
from tests.conformance.server import Server
from tests.memory.agents import HUNG, Agent, of_owner, ping
from tests.stores.servers import wait_for

PYTHON = '''\
"""Of an owner."""

from .harness.memory import MemoryPolicy


class OwnMemory(MemoryPolicy):
    max_wait_seconds = 600

    def is_due(self, collection, who, turns):
        if "slow" in who.actor:
            return False
        if any("boom" in text.text for texts in turns for text in texts):
            raise RuntimeError("boom")
        return len(turns) == 3

    def is_recorded(self, who, utterance):
        if "broken" in utterance.text:
            raise RuntimeError(utterance.text)
        return utterance.role == "USER" and "secret" not in utterance.text
'''
TYPESCRIPT = """\
// Of an owner.

import { MemoryPolicy } from './harness/memory/index.ts'
import type { Turns, Utterance, Who } from './harness/memory/index.ts'

export class OwnMemory extends MemoryPolicy {
  override readonly maxWaitSeconds = 600

  override isDue(_collection: string, who: Who, turns: Turns): boolean {
    if (who.actor.includes('slow')) return false
    if (turns.flat().some(([, text]) => text.includes('boom'))) throw new TypeError('boom')
    return turns.length === 3
  }

  override isRecorded(_who: Who, [role, text]: Utterance): boolean {
    if (text.includes('broken')) throw new TypeError(text)
    return role === 'USER' && !text.includes('secret')
  }
}
"""
WAIT = " = 600"

pytestmark = pytest.mark.usual("strands-python-valkey", "vercel-typescript-alone")


def sources(old: str = "", new: str = "") -> dict[str, str]:
    texts = {"own_memory.py": PYTHON, "own_memory.ts": TYPESCRIPT}
    return {name: text.replace(old, new) for name, text in texts.items()}


@pytest.fixture
def server(resting: Agent, tmp_path: Path) -> Iterator[Server]:
    server = of_owner(resting, tmp_path, sources(), SHUTDOWN_GRACE_SECONDS=60)
    yield server
    server.signal()
    server.stop()


def sizes(agent: Agent, who: str) -> list[int]:
    """How many texts each event of the notes has."""
    return [len(call.given["payload"]) for call in agent.events(agent.notes, who)]


def texts(agent: Agent, who: str) -> list[str]:
    return [text.partition(" canary")[0] for _, text in agent.said(agent.notes, who)]


@pytest.mark.full
def test_turns_of_a_session_wait_for_the_trigger_and_become_one_event(
    resting: Agent, server: Server, who: str
) -> None:
    chat, other = (Chat(server, resting.provider, actor=who) for _ in range(2))
    for text in ("One.", "Two."):
        chat.say(text)
    other.say("Elsewhere.")
    assert sizes(resting, who) == []
    assert ping(server) == "HealthyBusy", "something is still to be recorded"
    chat.say("Three.")
    wait_for("an event", lambda: sizes(resting, who) == [3])
    assert texts(resting, who) == ["One.", "Two.", "Three."], "in order, without the replies"
    other.end()
    wait_for("an event", lambda: sizes(resting, who) == [3, 1])
    assert texts(resting, who)[3:] == ["Elsewhere."], "a session that ends does not wait"
    wait_for("a Healthy", lambda: ping(server) == "Healthy")


@pytest.mark.full
def test_a_filter_or_a_trigger_that_fails_costs_no_turn(
    resting: Agent, server: Server, who: str
) -> None:
    chat = Chat(server, resting.provider, actor=who)
    for text in ("My secret.", "This is broken.", "Here is a boom."):
        assert chat.say(text).status == 200
    wait_for("an event", lambda: sizes(resting, who) == [1])
    assert texts(resting, who) == ["Here is a boom."]
    log = server.log
    assert "recording turns now: own_memory failed: " in log
    assert "text is not recorded: own_memory failed: " in log


def test_the_backlog_is_recorded_when_the_process_ends(
    resting: Agent, server: Server, who: str
) -> None:
    Chat(server, resting.provider, actor=f"slow-{who}").say("One.")
    assert sizes(resting, f"slow-{who}") == []
    server.signal()
    assert server.exit_code(within=HUNG) == 0
    assert texts(resting, f"slow-{who}") == ["One."]


@pytest.mark.full
def test_no_turn_waits_longer_than_its_file_says(resting: Agent, tmp_path: Path, who: str) -> None:
    server = of_owner(resting, tmp_path, sources(WAIT, " = 1"))
    try:
        Chat(server, resting.provider, actor=f"slow-{who}").say("One.")
        assert sizes(resting, f"slow-{who}") == []
        wait_for("an event", lambda: sizes(resting, f"slow-{who}") == [1])
    finally:
        server.signal()
        server.stop()
