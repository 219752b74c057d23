"""Random schedules of turns with effects: kills, lost saves, lost replies, approvals, edits."""

import random
import threading
import time

import pytest

from tests.conformance.client import JSON, KEY
from tests.conformance.steps import HANG, Call
from tests.effects.counter import CounterService
from tests.effects.world import Client, World
from tests.stores.agents import Agents
from tests.stores.servers import wait_for

FULL = (pytest.mark.slow, pytest.mark.full)
TOOLS = ("notify", "notify", "notify_if_approved", "pay", "pay_blindly", "pay_if_approved")
FAULTS = (
    *("", "the model fails", "the client leaves", "cut request", "cut reply", "a freeze"),
    *("a lost reply", "a stop"),
)
# In the results of calls without an effect.
REPORTS = ("did not run", "is unknown", "may still be running")
KILLS = ("a kill", "a kill after the commit")


def disturb(world: World, chosen: random.Random, turns: int, kills: int) -> list[Client]:
    """Take turns in several sessions, with a fault in most of them."""
    clients = [Client(world, chosen) for _ in range(max(3, turns // 12))]
    faults = [chosen.choice(KILLS) for _ in range(kills)]
    faults += [chosen.choice(FAULTS) for _ in range(turns - kills)]
    chosen.shuffle(faults)
    for fault in faults:
        if fault == "a lost reply":
            world.service.lose = 1
        if fault == "a stop":
            world.stop(chosen.randrange(2))
        client = chosen.choice(clients)
        client.take_turn(chosen.choice(TOOLS), fault, replaces=chosen.random() < 0.1)
    return clients


LONG = (*FULL, pytest.mark.timeout(1800))
SIZES = [pytest.param(24, 5, id="short"), pytest.param(500, 100, id="long", marks=LONG)]


@pytest.mark.parametrize(("turns", "kills"), SIZES)
def test_each_committed_call_has_its_effect_once_and_no_other_call_has(
    world: World, turns: int, kills: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    clients = disturb(world, random.Random(seed), turns, kills)
    assert world.kills == kills
    world.finish(*(client.session for client in clients))
    for client in clients:
        snapshot = str(world.home.store.snapshot(client.session))
        expected = {name for _, _, name in client.committed}
        for _, tool, name in client.committed:
            effects = world.service.effects(name)
            if tool.startswith("notify"):
                assert effects == 1, (tool, name)
            else:
                assert effects <= 1, (tool, name)
                is_reported = any(reason in snapshot for reason in REPORTS)
                assert effects == 1 or is_reported, (tool, name, snapshot)
        for name in client.denied - expected:
            assert world.service.effects(name) == 0 or name.startswith("pay")
    names = {name for client in clients for _, _, name in client.committed}
    names |= {name for client in clients for name in client.replaced}
    scheduled = {name for name in world.service.keys.values() if name.startswith("notify")}
    assert scheduled <= names


@pytest.mark.parametrize(("turns", "kills"), SIZES)
def test_a_call_in_a_turn_has_its_effect_at_most_once_and_no_unknown_outcome_is_silent(
    strict_world: World, turns: int, kills: int
) -> None:
    world = strict_world
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    clients = disturb(world, random.Random(seed), turns, kills)
    sessions = [client.session for client in clients]
    world.finish(*sessions)
    time.sleep(8)  # the limit of the calls that a kill has interrupted
    listed = {effect["key"] for effect in world.listed(*sessions)}
    known = {call["key"]: call for session in sessions for call in world.records(session)}
    for key, name in world.service.keys.items():
        if name.startswith("pay"):
            assert world.service.counts[key] == 1, name
            assert key in known, name
            assert known[key]["status"] == "done" or key in listed, known[key]


def test_a_killed_process_leaves_its_effects_to_another(world: World) -> None:
    world.service.pause = threading.Event()
    chat = world.chat(0)
    reply = chat.say("Call.", [Call("notify", {"name": "one"})], ["Done."], headers=JSON)
    assert reply.status == 200
    world.kill(0)
    world.service.pause.set()
    world.service.pause = None
    begin = time.monotonic()
    world.finish(chat.session)
    assert world.service.effects("one") == 1
    assert len(world.service.keys_of("one")) == 1
    if world.home.store.name == "valkey":
        assert time.monotonic() - begin < 40


@pytest.mark.rows(where=lambda row: row["agents"][1] == "valkey")  # others do not list sessions
def test_a_running_call_stays_with_its_process_while_the_store_is_too_slow(agents: Agents) -> None:
    service = CounterService(deduplicates=False)
    service.pause = end = threading.Event()
    world = World(agents, service, EFFECT_TIMEOUT_SECONDS=60)
    try:
        chat = world.chat(0)
        reply = chat.say("Call.", [Call("notify", {"name": "six"})], ["Done."], headers=JSON)
        assert reply.status == 200
        wait_for("a call", lambda: service.requests == 1)
        world.replicas[0].proxy.mode = "hang"
        time.sleep(12)
        world.stop(1)  # the new process looks at all sessions
        assert world.replicas[1].server.get("/ping").status == 200
        time.sleep(8)
        assert service.requests == 1
        world.replicas[0].proxy.reset()
        end.set()
        world.finish(chat.session)
        assert service.requests == 1
    finally:
        end.set()
        service.close()


def test_a_repeated_turn_of_another_process_gets_the_recorded_result(strict_world: World) -> None:
    world = strict_world
    chat = world.chat(0)
    key = {**JSON, KEY: "key-1"}
    exchange = chat.start("Pay.", [Call("pay_blindly", {"name": "two"})], [HANG], headers=key)
    chat.call("Pay.", 2)  # the model has the result
    world.kill(0)
    exchange.leave()
    other = chat.elsewhere(world.replicas[1].server)
    other.script("Pay.", [Call("pay_blindly", {"name": "two"})], ["Paid."])
    reply = other.post({"prompt": f"Pay.{chat.tag}"}, key)
    assert reply.status == 200, reply
    assert world.service.effects("two") == 1
    results = [entry for entry in other.history(other.calls("Pay.")[-1]) if entry[0] != "user"]
    assert "counted two" in str(results)


def test_a_person_settles_an_unknown_outcome(strict_world: World) -> None:
    world = strict_world
    world.service.lose = 1
    chat = world.chat(0)
    call = Call("pay_blindly", {"name": "three"})
    assert chat.say("Pay.", [call], [call], ["Unknown."], headers=JSON).status == 200
    assert world.service.effects("three") == 1
    [effect] = world.listed(chat.session)
    assert effect["status"] == "unknown"
    assert "arguments" not in effect
    assert f"effect {effect['key']} of pay_blindly" in world.replicas[0].server.log
    words = ("settle", effect["key"], "done", "--session", chat.session, "--result", "By hand.")
    done = world.home.run("effects", *words)
    assert done.returncode == 0, done.stderr
    assert world.listed(chat.session) == []


def test_a_turn_that_waits_for_an_approval_gets_the_decision_of_a_person(
    strict_world: World,
) -> None:
    world = strict_world
    world.service.lose = 1
    chat = world.chat(0)
    call = Call("pay_blindly", {"name": "four"})
    question = Call("pay_if_approved", {"name": "five"})
    reply = chat.say("Pay.", [call], [question], headers=JSON)
    ids = [waiting["id"] for waiting in reply.json["waiting"]]
    [effect] = world.listed(chat.session)
    words = ("settle", effect["key"], "done", "--session", chat.session, "--result", "By hand.")
    done = world.home.run("effects", *words)
    assert done.returncode == 0, done.stderr
    chat.script("Pay.", [call], ["Paid."])
    reply = chat.post({"approve": ids}, JSON)
    assert reply.status == 200, reply
    assert world.service.effects("four") == 1
    assert world.service.effects("five") == 1
    assert "By hand." in str(world.home.store.snapshot(chat.session))
