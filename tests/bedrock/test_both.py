"""Memories of two kinds in one agent, with sessions in a bucket that keeps versions."""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from tests.agentcore.server import AgentCore
from tests.bedrock.agents import (
    SETTINGS,
    declared,
    shown,
    variables,
    with_knowledge_base,
)
from tests.bedrock.server import Bedrock
from tests.conformance.chat import Chat
from tests.conformance.server import Server
from tests.conformance.steps import Hold
from tests.conformance.targets import Target
from tests.memory.agents import PROJECT, Home, collection, ping, unique
from tests.memory.provider import MemoryProvider
from tests.stores.servers import wait_for
from tests.stores.stores import BUCKET, Backing, S3Store

CAT, QUESTION = "My cat is called Miso.", "What is my cat called?"
# What the bucket is asked: the stand-in keeps no log of its calls.
OF_VERSIONS = {"s3:ListBucketVersions", "s3:GetObjectVersion", "s3:DeleteObjectVersion"}
NOTES = {"/users/{actorId}/facts": (5, 0.2)}
SLOW = 1.5  # seconds

pytestmark = pytest.mark.usual("vercel-python", "strands-typescript")


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Target:
    answers = {"long_term_memory": "agentcore-and-knowledge-base", "session_store": "s3"}
    return with_knowledge_base(cast(Target, request.param), **answers)


class Both:
    """An agent whose collection `notes` is in AgentCore, and `facts` in a knowledge base."""

    def __init__(
        self, target: Target, folder: Path, provider: MemoryProvider, stack: ExitStack
    ) -> None:
        self.provider, agent_id = provider, unique("agent")
        self.agentcore = stack.enter_context(AgentCore())
        self.bedrock = stack.enter_context(Bedrock())
        self.memory = self.agentcore.add_memory("notes", "semantic:/users/{actorId}/facts")
        self.base = self.bedrock.add_base()
        self.store = S3Store(Backing(folder, stack), agent_id)
        self.home = Home(target, folder)
        self.home.declare(collection("notes", "user", NOTES), declared("facts"), agent_id=agent_id)
        given = {**SETTINGS, "RECALL_TIMEOUT_SECONDS": 5, **self.variables}
        self.server = Server(target, self.home.folder, provider.origin, given)
        stack.callback(self.server.stop)
        stack.callback(self.server.signal)
        self.chat("nobody").say("Wake up?")
        self.idle()

    @property
    def variables(self) -> dict[str, str]:
        found = self.store.environment(self.store.address) | self.agentcore.environment()
        found |= variables(self.bedrock, facts=self.base)
        return {**found, "SECRETS_AGENTCORE_NOTES": self.memory}

    def chat(self, actor: str) -> Chat:
        return Chat(self.server, self.provider, actor=actor)

    def idle(self) -> None:
        wait_for("a Healthy", lambda: ping(self.server) == "Healthy")

    def everything(self) -> str:
        """All that is kept anywhere: sessions in all versions, events, records and documents."""
        listed = self.store.client.list_object_versions(Bucket=BUCKET)
        versions = [
            self.store.client.get_object(Bucket=BUCKET, Key=it["Key"], VersionId=it["VersionId"])[
                "Body"
            ].read()
            for it in listed.get("Versions", [])
            if self.store.agent_id in it["Key"]
        ]
        kept = self.agentcore.service.memories[self.memory]
        documents = self.bedrock.service.bases[self.base].documents
        found = {key: it for key, it in documents.items() if it.gone == float("inf")}
        return repr([versions, kept.events, kept.records, found])


@pytest.fixture(scope="session")
def both(
    target: Target, provider: MemoryProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    with ExitStack() as stack:
        yield Both(target, tmp_path_factory.mktemp("both"), provider, stack)


@pytest.fixture
def agent(both: Both) -> Iterator[Both]:
    yield both
    for service in (both.agentcore, both.bedrock):
        service.faults.clear()
    both.idle()
    assert both.agentcore.take_violations() == []
    assert both.bedrock.take_violations() == []


def test_each_kind_has_its_form_and_one_search_finds_all(agent: Both, who: str) -> None:
    agent.chat(who).say(CAT)
    agent.idle()
    said = [it["conversational"]["role"] for it in agent.agentcore.service.said(agent.memory, who)]
    assert said == ["USER", "ASSISTANT"]
    assert agent.bedrock.service.texts(agent.base, f"/users/{who}/facts/") == [CAT]
    agent.bedrock.remember(agent.base, f"/users/{who}/facts/", "The cat is grey.")
    agent.agentcore.remember(agent.memory, f"/users/{who}/facts", "The cat is old.")
    chat = agent.chat(who)
    chat.say(QUESTION)
    entries = {text: source for source, text in agent.provider.remembered(chat.calls(QUESTION)[0])}
    assert (entries["The cat is grey."], entries["The cat is old."]) == ("facts", "notes")
    assert CAT in entries, "which both kinds found, and is shown once"


@pytest.mark.full
def test_a_recall_takes_as_long_as_its_slowest_memory(agent: Both, who: str) -> None:
    def seconds(*slow: str) -> float:
        """Return how long a turn takes while these memories take `SLOW` seconds to answer."""
        if "notes" in slow:
            agent.agentcore.faults.slow("RetrieveMemoryRecords", SLOW)
        if "facts" in slow:
            agent.bedrock.faults.slow("Retrieve", SLOW)
        began = time.monotonic()
        agent.chat(who).say(QUESTION)
        return time.monotonic() - began

    one_by_one = seconds("notes") + seconds("facts")
    together = seconds("notes", "facts")
    print(f"one by one {one_by_one:.2f} s, together {together:.2f} s")
    assert SLOW <= together < 0.75 * one_by_one


@pytest.mark.full
@pytest.mark.parametrize("failing", ["notes", "facts"])
def test_a_memory_that_fails_is_skipped_and_named(agent: Both, who: str, failing: str) -> None:
    agent.bedrock.remember(agent.base, f"/users/{who}/facts/", "The cat is grey.")
    agent.agentcore.remember(agent.memory, f"/users/{who}/facts", "The cat is old.")
    if failing == "notes":
        agent.agentcore.faults.deny("RetrieveMemoryRecords", 1)
    else:
        agent.bedrock.faults.deny("Retrieve", 1)
    before = agent.server.log.count(f" of {failing}: ")
    chat = agent.chat(who)
    assert chat.say(QUESTION).status == 200
    other = "The cat is grey." if failing == "notes" else "The cat is old."
    assert shown(agent.provider, chat, QUESTION) == [other]
    wait_for("a line", lambda: agent.server.log.count(f" of {failing}: ") > before)


def test_a_fact_that_a_model_finds_while_its_actor_is_forgotten_is_not_kept(
    agent: Both, who: str
) -> None:
    gate, usual = threading.Event(), agent.provider.summarize
    agent.provider.summarize = lambda prompt: [Hold(gate), *usual(prompt)]
    try:
        agent.chat(who).say(CAT)
        wait_for("the model", lambda: any(CAT in it.prompt for it in agent.provider.summaries()))
        forgot = ("forget", "--actor", who, "--json")
        result = agent.home.run(*forgot, PROJECT_ID=PROJECT, **agent.variables)
        assert (result.returncode, json.loads(result.stdout)["could_not"]) == (0, []), result
    finally:
        gate.set()
        agent.provider.summarize = usual
    agent.idle()
    assert agent.bedrock.service.texts(agent.base, f"/users/{who}/facts/") == []


@pytest.mark.full
def test_nothing_of_a_forgotten_actor_is_left_in_any_store(agent: Both, who: str) -> None:
    versioning = {"Status": "Enabled"}
    agent.store.client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration=versioning)
    other = f"{who}2"
    for actor in (who, other):
        for _ in range(2):
            chat = agent.chat(actor)
            chat.say(f"My name is {actor}.")
            chat.say("And my cat is called Miso.")
        ended = agent.chat(actor)
        ended.say(f"My name is still {actor}.")
        ended.end()
        expired = agent.chat(actor)
        expired.say(f"My name was always {actor}.")
        agent.store.expire(expired.session)
    agent.idle()
    assert f"{who}'" in agent.everything()
    assert f"{who}." in agent.everything()
    agent.agentcore.calls.clear()
    agent.bedrock.calls.clear()
    result = agent.home.run(
        "forget", "--actor", who, "--json", PROJECT_ID=PROJECT, **agent.variables
    )
    report: Any = json.loads(result.stdout)
    assert (result.returncode, report["could_not"]) == (0, []), result
    assert (report["actor"], report["agent"]) == (who, agent.store.agent_id)
    places = {it["where"]: it for it in report["places"]}
    assert places["the session store"]["sessions"] == report["sessions"] == 2
    assert places["collection notes"]["events"] == report["events"] > 0
    records = [places[f"collection {name}"]["records"] for name in ("notes", "facts")]
    assert sum(records) == report["records"]
    assert min(records) > 0
    assert all(it["contact"] for it in report["places"])
    left = agent.everything()
    assert other in left
    for trace in (f"{who}'", f"{who}.", f"{who}/", f'{who}"'):
        assert trace not in left, trace
    name = f"{agent.store.agent_id}/{PROJECT}"
    unshared = ("--unshared", "notes", "--unshared", "facts")
    command = ("erase-project", "--yes", name, *unshared)
    erased = agent.home.run(*command, PROJECT_ID=PROJECT, **agent.variables)
    assert erased.returncode == 0, erased
    assert other not in agent.everything()
    called = {f"bedrock-agentcore:{it.operation}" for it in agent.agentcore.calls.of()}
    called |= {f"bedrock:{it.operation}" for it in agent.bedrock.calls.of()}
    assert erasure_actions(agent) == called | OF_VERSIONS | {"bedrock:StartIngestionJob"}


def erasure_actions(agent: Both) -> set[str]:
    """The actions of the policy that `iam --erasure` prints and saves, all for one resource."""
    printed = agent.home.run("iam", "--erasure")
    assert printed.returncode == 0, printed
    policy = json.loads(printed.stdout)
    assert agent.home.run("iam", "--erasure", "--save").returncode == 0
    saved = agent.home.folder / "iam" / f"{agent.store.agent_id}.erasure.json"
    assert json.loads(saved.read_text()) == policy
    assert "AML-W248" not in agent.home.run("check").stdout
    saved.write_text("{}")
    (warning,) = re.findall("AML-W248 (.*)", agent.home.run("check").stdout)
    assert "--erasure --save`" in warning
    saved.unlink()
    for statement in policy["Statement"]:
        assert statement["Effect"] == "Allow"
        assert statement["Resource"] != ["*"]
    return {action for it in policy["Statement"] for action in it["Action"]}
