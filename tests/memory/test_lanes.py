"""Recording keeps up: several sessions at once, each in order, and no actor delays another."""

import time

import pytest

from tests.conformance.chat import Chat
from tests.conformance.server import Server
from tests.memory.agents import HUNG, Agent, of, ping
from tests.stores.servers import wait_for

WRITE = "CreateEvent"
SESSIONS, TURNS, SECONDS = 10, 3, 0.3  # of each session, and of each record
CODES = ("ServiceException", "ThrottledException")

pytestmark = pytest.mark.usual("strands-python-valkey", "vercel-typescript-alone")


def prompts(agent: Agent, actor: str) -> list[str]:
    """What the memory of the team was told of an actor, without replies and canaries."""
    said = agent.said(agent.team, actor)
    return [text.partition(" canary")[0] for role, text in said if role == "USER"]


@pytest.mark.full
def test_an_actor_whose_records_fail_delays_nobody(agent: Agent, who: str) -> None:
    agent.learn_nothing()
    bad = f"{who}-bad"
    for code in CODES:
        where = of(agent.team, actorId=f"{bad}-{code}")
        agent.service.faults.error(WRITE, code, times=None, where=where)
        for _ in range(10):  # more sessions than an actor has slots
            agent.chat(f"{bad}-{code}").say("Mine fails.")
    for text in ("One.", "Two."):
        agent.chat(who).say(text)
    wait_for("the records", lambda: sorted(prompts(agent, who)) == ["One.", "Two."])
    for code in CODES:
        assert prompts(agent, f"{bad}-{code}") == [], "they still fail"
    assert agent.ping() == "HealthyBusy"
    agent.service.faults.clear()
    agent.idle()
    for code in CODES:
        assert prompts(agent, f"{bad}-{code}") == ["Mine fails."] * 10


@pytest.mark.usual
def test_an_actor_whose_records_hang_delays_nobody(agent: Agent, who: str) -> None:
    agent.learn_nothing()
    bad = f"{who}-bad"
    agent.service.faults.hang(WRITE, times=None, where=of(agent.team, actorId=bad))
    for _ in range(20):
        agent.chat(bad).say("Mine hangs.")
    began = len(agent.service.calls.of(WRITE))
    agent.chat(who).say("One.")
    wait_for("the record", lambda: prompts(agent, who) == ["One."])
    assert len(agent.service.calls.of(WRITE)) < began + 10, "and no attempt had to end first"
    agent.service.faults.clear()
    agent.idle()
    assert prompts(agent, bad) == ["Mine hangs."] * 20


@pytest.mark.full
def test_sessions_are_recorded_at_once_and_each_in_order(agent: Agent, who: str) -> None:
    agent.learn_nothing()

    def spent(name: str) -> float:
        """How long the turns take until all are recorded."""
        chats = [agent.chat(f"{who}-{name}-{number}") for number in range(SESSIONS)]
        began = time.monotonic()
        for turn in range(TURNS):
            running = [chat.start(f"Turn {turn}.") for chat in chats]
            assert [it.reply().turn for it in running] == [turn + 1] * SESSIONS
        agent.idle()
        took = time.monotonic() - began
        for chat in chats:
            assert prompts(agent, chat.actor or "") == [f"Turn {turn}." for turn in range(TURNS)]
        return took

    fast = min(spent(f"fast{number}") for number in range(2))
    agent.service.faults.fail(WRITE, 500, times=3, where=of(agent.team))
    agent.service.faults.slow(WRITE, SECONDS, times=None, where=of(agent.team))
    slow = min(spent(f"slow{number}") for number in range(2))
    serial = SESSIONS * TURNS * SECONDS
    assert slow - fast < serial / 3, (fast, slow, serial)


@pytest.mark.full
def test_the_backlog_of_an_actor_drops_nothing_of_others(agent: Agent, who: str) -> None:
    before = agent.server.log.count("the queue is full")
    agent.service.faults.fail(WRITE, times=None, where=of(agent.team))
    agent.learn_nothing()
    chat, long = agent.chat(who), 2_000_000 * "x"
    for text in ("One.", "Two."):
        assert chat.say(text).turn
    for _ in range(9):  # 18 MB of texts: more than may wait
        assert agent.chat(f"{who}-long").say(long, ["Noted."]).turn == 1
    wait_for("a line in the log", lambda: agent.server.log.count("the queue is full") > before)
    agent.service.faults.clear()
    agent.idle()
    assert prompts(agent, who) == ["One.", "Two."]


def ended_with(resting: Agent, who: str, seconds: float, grace: int, sessions: int) -> Server:
    """A server that is told to end while the records of sessions wait, each takes `seconds`."""
    resting.learn_nothing()
    server = resting.fresh(SHUTDOWN_GRACE_SECONDS=grace)
    held = resting.service.faults.hold(WRITE, times=None, where=of(resting.team))
    actors = [f"{who}-{number}" for number in range(sessions)]
    running = [Chat(server, resting.provider, actor=actor).start("Mine.") for actor in actors]
    assert {it.reply().turn for it in running} == {1}
    assert ping(server) == "HealthyBusy"
    resting.service.faults.clear()
    resting.service.faults.slow(WRITE, seconds, times=None, where=of(resting.team))
    server.signal()
    held.release()
    assert server.exit_code(within=HUNG) == 0
    for actor in actors:
        assert prompts(resting, actor) == ["Mine."]
    assert "not recorded" not in server.log
    return server


@pytest.mark.full
def test_the_backlog_is_recorded_within_the_grace_period(resting: Agent, who: str) -> None:
    ended_with(resting, who, seconds=0.5, grace=8, sessions=40)  # 20 s one after the other


@pytest.mark.usual
def test_a_slow_memory_gets_the_whole_grace_time(resting: Agent, who: str) -> None:
    ended_with(resting, who, seconds=3, grace=30, sessions=4)
