"""Namespaces of strategies: {memoryStrategyId} is filled in from the memory resource."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.chat import Chat
from tests.conformance.server import Server
from tests.conformance.targets import Target
from tests.memory.agents import RECALL, SETTINGS, Agent, Home, collection, unique
from tests.stores.servers import wait_for

TEMPLATE = "/strategies/{memoryStrategyId}/actors/{actorId}"
NAMESPACES = {TEMPLATE: (3, 0.1), "/users/{actorId}/facts": (3, 0.1)}
CAT = "My cat is called Miso."

pytestmark = pytest.mark.usual("vercel-python-alone", "strands-typescript-alone")


@pytest.fixture
def home(target: Target, tmp_path: Path) -> Home:
    """A folder with one collection, whose sessions live in the process."""
    home = Home(target, tmp_path)
    home.sessions.unlink(missing_ok=True)
    home.declare(collection("notes", "user", NAMESPACES))
    return home


def made(agent: Agent, *members: str) -> str:
    """A memory with a strategy of each kind, which has the namespaces that the service gives."""
    name = unique("strategies").replace("-", "_")
    given = {"name": name, "eventExpiryDuration": 90}
    given["memoryStrategies"] = [{member: {"name": member[:8]}} for member in members]
    return str(agent.service.service.call("CreateMemory", given)["memory"]["id"])


def variables(agent: Agent, memory: str) -> dict[str, str]:
    return {**agent.service.environment(), "SECRETS_AGENTCORE_NOTES": memory}


@pytest.fixture
def memory(resting: Agent) -> str:
    return made(resting, "semanticMemoryStrategy", "summaryMemoryStrategy")


@pytest.fixture
def server(resting: Agent, home: Home, memory: str) -> Iterator[Server]:
    given = {**SETTINGS, **variables(resting, memory)}
    server = Server(resting.target, home.folder, resting.provider.origin, given)
    yield server
    server.signal()
    server.stop()


def test_each_strategy_that_writes_there_is_searched_for_its_actor(
    resting: Agent, server: Server, memory: str, who: str
) -> None:
    assert Chat(server, resting.provider, actor=who).say(CAT).turn == 1
    wait_for("the recording", lambda: server.get("/ping").json["status"] == "Healthy")
    described = resting.service.service.memories[memory].description
    (semantic,) = (it["strategyId"] for it in described["strategies"] if it["type"] == "SEMANTIC")
    resting.service.remember(memory, f"/users/{who}/facts", "The cat of my friend is old.")
    for name in (f"{who}2", who):
        resting.service.calls.clear()
        chat = Chat(server, resting.provider, actor=name)
        chat.say("cat")
        shown = set(resting.shown(chat, "cat"))
        wanted = {CAT, f"You said: {CAT}", "The cat of my friend is old."}
        assert shown == (wanted if name == who else set())
        asked = [it.given["namespace"] for it in resting.service.calls.of("RetrieveMemoryRecords")]
        of_strategy = f"/strategies/{semantic}/actors/{name}/"
        assert sorted(asked) == [of_strategy, f"/users/{name}/facts/"]
    assert resting.service.calls.of("GetMemory") == [], "it was described once"


@pytest.mark.full
def test_check_and_forget_know_the_namespaces_of_strategies(
    resting: Agent, home: Home, memory: str, who: str
) -> None:
    def checked(memory: str) -> list[str]:
        result = home.run("check", "--connect", "--json", **variables(resting, memory))
        found = json.loads(result.stdout)["diagnostics"]
        return [it["message"] for it in found if it["id"] == "AML-W244"]

    (other,) = checked(memory)
    assert other.startswith("No strategy of the memory writes to /users/{actorId}/facts: ")
    template, _ = checked(made(resting, "summaryMemoryStrategy"))
    assert template.startswith(f"No strategy of the memory writes to {TEMPLATE}: ")

    described = resting.service.service.memories[memory].description
    for strategy in described["strategies"]:
        for name in (who, f"{who}2"):
            at = f"/strategies/{strategy['strategyId']}/actors/{name}"
            resting.service.remember(memory, at, f"Of {name}.")
    result = home.run("forget", "--actor", who, "--json", **variables(resting, memory))
    assert result.returncode == 0, result
    assert json.loads(result.stdout)["records"] == 2
    assert set(resting.service.service.texts(memory)) == {f"Of {who}2."}


@pytest.mark.full
def test_a_memory_that_cannot_be_described_costs_no_turn(
    resting: Agent, home: Home, memory: str, who: str
) -> None:
    given = {**SETTINGS, **variables(resting, memory), "RECALL_TIMEOUT_SECONDS": RECALL}
    server = Server(resting.target, home.folder, resting.provider.origin, given)
    try:
        resting.service.faults.fail("GetMemory", times=1)
        chat = Chat(server, resting.provider, actor=who)
        assert chat.say(CAT).turn == 1
        assert "could not list the namespaces of notes: " in server.log
        wait_for("the recording", lambda: server.get("/ping").json["status"] == "Healthy")
        again = Chat(server, resting.provider, actor=who)
        again.say("cat")
        assert CAT in resting.shown(again, "cat"), "it is asked again in the next turn"
    finally:
        server.signal()
        server.stop()


def test_the_policy_allows_to_ask_for_the_strategies(home: Home) -> None:
    result = home.run("iam", SECRETS_AGENTCORE_NOTES="notes-0123456789")
    assert result.returncode == 0, result
    found = {it["Sid"]: it for it in json.loads(result.stdout)["Statement"]}
    assert found["DescribeNotes"]["Action"] == ["bedrock-agentcore:GetMemory"]
    condition = found["RecallNotes"]["Condition"]["StringLike"]
    paths = ["/strategies/*/actors/*/", "/users/*/facts/"]
    assert condition == {"bedrock-agentcore:namespace": paths}


def test_a_trial_has_one_strategy(home: Home) -> None:
    chat = ("chat", "--actor", "robin")
    assert home.run(*chat, typed=f"{CAT}\n").returncode == 0
    assert '"/strategies/local/actors/robin/"' in home.local()
    second = home.run(*chat, typed="What is my cat called?\n")
    assert f'I remember: "{CAT}"' in second.stdout
    assert home.run("forget", "--actor", "robin").returncode == 0
    assert "robin" not in home.local()
