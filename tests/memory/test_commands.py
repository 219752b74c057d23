"""The command line of an owner: a trial without an account, forget, iam, and check."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.targets import Target
from tests.conftest import Rendered
from tests.memory.agents import NOTES, PROJECT, Agent, Files, collection, run, unique

RENDERED = ("/facts/{actorId}", "/preferences/{actorId}")  # of the collection that is rendered
NOBODY = "This agent remembers people: say who you are, with --actor ID or in a header."
Trial = Callable[..., Any]


@pytest.fixture
def trial(target: Target, rendered: Rendered, tmp_path: Path) -> Trial:
    """Commands in a folder as it is rendered, in which nothing is set but what is given."""
    project = rendered(f"{target.name}+valkey+agentcore")
    for kind in ("collections", "agents", "iam"):
        shutil.copytree(project / kind, tmp_path / kind)
    return lambda *words, typed="", **more: run(target, tmp_path, *words, typed=typed, **more)


def test_a_trial_needs_no_account(trial: Trial, tmp_path: Path) -> None:
    first = trial("chat", "--actor", "ada", typed="My cat is called Miso.\n")
    assert first.returncode == 0, first
    assert ".memory" in first.stdout, "it says where it is remembered"
    second = trial("chat", "--actor", "ada", typed="What is my cat called?\n")
    assert 'I remember: "My cat is called Miso."' in second.stdout
    assert (tmp_path / ".memory" / ".gitignore").read_text().strip() == "*"
    forgotten = trial("forget", "--actor", "ada")
    assert forgotten.returncode == 0, forgotten
    left = "".join(path.read_text() for path in (tmp_path / ".memory").glob("*"))
    assert "ada" not in left
    assert "Miso" not in left


@pytest.mark.usual("strands-python")
def test_a_trial_keeps_people_apart(trial: Trial, tmp_path: Path) -> None:
    for name, text in (("ada", "My cat is called Miso."), ("bob", "What is my cat called?")):
        result = trial("chat", "--actor", name, typed=f"{text}\n")
        assert "I remember" not in result.stdout
    nobody = trial("chat", typed="What is my cat called?\n")
    assert nobody.returncode == 1
    assert NOBODY in nobody.stdout + nobody.stderr
    assert trial("forget", "--actor", "ada").returncode == 0
    left = "".join(path.read_text() for path in (tmp_path / ".memory").glob("*"))
    assert "ada" not in left
    assert "Miso" not in left
    assert "What is my cat called?" in left, "of bob"


def test_forget_erases_one_person_and_no_other(agent: Agent, who: str) -> None:
    chats = [agent.chat(who), agent.chat(who), agent.chat(f"{who}2")]
    for chat in chats:
        for text in ("The tea is green.", "It is hot."):
            assert chat.say(text).status == 200
    agent.idle()
    agent.service.remember(agent.notes, f"/users/{who}/preferences/deep", "Deep.")
    theirs = sorted(agent.service.service.texts(agent.notes, f"/users/{who}2"))
    result = agent.run("forget", "--actor", who, "--json")
    assert result.returncode == 0, result
    report = json.loads(result.stdout)
    assert (report["actor"], report["sessions"], report["could_not"]) == (who, 2, [])
    assert report["events"] == 8, "of four turns in two memories"
    assert report["records"] >= 8
    assert "of all people" in "".join(report["notes"]), "what is the project's cannot be told apart"
    assert agent.service.service.texts(agent.notes, f"/users/{who}") == []
    for memory in (agent.notes, agent.team):
        assert agent.said(memory, who) == []
        assert len(agent.said(memory, f"{who}2")) == 4
    assert [agent.home.store.snapshot(chat.session) is None for chat in chats] == [
        True,
        True,
        False,
    ]
    assert sorted(agent.service.service.texts(agent.notes, f"/users/{who}2")) == theirs


@pytest.mark.usual("vercel-typescript")
def test_forget_says_what_it_could_not(agent: Agent, who: str) -> None:
    chat = agent.chat(who)
    assert chat.say("The tea is green.").turn == 1
    agent.idle()
    agent.service.faults.deny("DeleteEvent")
    result = agent.run("forget", "--actor", who)
    assert result.returncode == 1, result
    assert re.search("could not: events .*notes", result.stdout)
    assert agent.home.store.snapshot(chat.session) is None, "the rest was erased"
    assert agent.service.service.texts(agent.notes, f"/users/{who}") == []
    agent.service.faults.clear()
    agent.down()
    result = agent.run("forget", "--actor", who)
    assert result.returncode == 1, result
    assert "could not: events" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr
    agent.up()
    assert agent.run("forget", "--actor", who).returncode == 0
    assert agent.said(agent.notes, who) == agent.said(agent.team, who) == []


@pytest.mark.usual("vercel-python")
def test_forget_takes_no_id_that_cannot_be_one(trial: Trial) -> None:
    refused = trial("forget", "--actor", "ada@example.com")
    assert refused.returncode == 2
    assert "SHA-256" in refused.stdout + refused.stderr
    assert trial("forget").returncode == 2


@pytest.mark.usual("strands-typescript")
def test_iam_prints_what_is_used_and_no_more(trial: Trial, tmp_path: Path) -> None:
    printed = trial("iam")
    assert printed.returncode == 0, printed
    policy = json.loads(printed.stdout)
    actions = {action for one in policy["Statement"] for action in one["Action"]}
    assert actions == {
        "bedrock-agentcore:CreateEvent",
        "bedrock-agentcore:RetrieveMemoryRecords",
        "secretsmanager:GetSecretValue",
    }
    assert all(one["Effect"] == "Allow" and one["Resource"] for one in policy["Statement"])
    (recall,) = (
        one
        for one in policy["Statement"]
        if one["Action"] == ["bedrock-agentcore:RetrieveMemoryRecords"]
    )
    assert recall["Condition"] == {
        "StringLike": {"bedrock-agentcore:namespace": ["/facts/*/", "/preferences/*/"]}
    }
    assert recall["Resource"][0].endswith("memory/${SECRETS_AGENTCORE_MEMORIES}")
    assert trial("iam", "--save").returncode == 0
    saved = tmp_path / "iam" / "my-agent.policy.json"
    assert json.loads(saved.read_text()) == policy
    assert "AML-W248" not in trial("check").stdout
    file = tmp_path / "collections" / "memories.collection.md"
    file.write_text(file.read_text().replace("/preferences/{actorId}", "/likes/{actorId}"))
    assert "AML-W248" in trial("check").stdout


@pytest.mark.usual("vercel-python", "strands-typescript")
def test_check_looks_at_the_memory(resting: Agent, trial: Trial) -> None:
    more = resting.service.environment()
    add = resting.service.add_memory
    fitting = add(unique("fits").replace("-", "_"), *(f"semantic:{one}" for one in RENDERED))
    other = add(unique("other").replace("-", "_"), f"semantic:{RENDERED[0]}")
    # Nothing is called without credentials, and that is told.
    unseen = ids_of(trial("check", "--json", SECRETS_AGENTCORE_MEMORIES=fitting))
    assert "AML-W247" in unseen
    assert resting.service.calls.count() == 0
    for memory, wrong in (
        (fitting, set()),
        (other, {"AML-W244"}),
        ("absent-0123456789", {"AML-E112"}),
    ):
        result = trial("check", "--json", SECRETS_AGENTCORE_MEMORIES=memory, **more)
        about = {
            id for id in ids_of(result) if id in {"AML-E112", *(f"AML-W24{n}" for n in "34567")}
        }
        assert about == wrong
        if "AML-W244" in wrong:
            assert f"they write to {RENDERED[0].rstrip('/')}" in result.stdout
        assert result.returncode == (1 if "AML-E112" in wrong else 0)
    resting.service.faults.deny("GetMemory")
    denied = trial("check", "--json", SECRETS_AGENTCORE_MEMORIES=fitting, **more)
    assert "AML-W247" in ids_of(denied)
    assert denied.returncode == 0


def ids_of(result: Any) -> set[str]:
    """The findings about long-term memory."""
    found = json.loads(result.stdout)["diagnostics"]
    return {one["id"] for one in found if "memories.collection.md" in one["file"]}


@pytest.mark.usual("vercel-python")
def test_two_collections_that_write_to_one_memory_are_no_start(
    resting: Agent, target: Target, tmp_path: Path
) -> None:
    other = {"/others/{actorId}": (2, 0.5)}
    texts = collection("notes", "user", NOTES), collection("more", "user", other)
    files, more = Files(target, tmp_path, *texts), resting.service.environment()
    ids = {"SECRETS_AGENTCORE_NOTES": resting.notes, "SECRETS_AGENTCORE_MORE": resting.notes}
    result = files.run("chat", "--actor", "ada", typed="Hello.\n", **more, **ids)
    assert result.returncode == 1
    assert "notes" in result.stderr + result.stdout
    assert "both write to one memory" in result.stderr + result.stdout
    ids["SECRETS_AGENTCORE_MORE"] = resting.team
    assert files.run("chat", "--actor", "ada", typed="Hello.\n", **more, **ids).returncode == 0


@pytest.mark.usual("vercel-typescript")
def test_without_namespaces_those_of_the_resource_are_read(
    resting: Agent, target: Target, tmp_path: Path, who: str
) -> None:
    files = Files(target, tmp_path, collection("notes", "user", None))
    more = {**resting.service.environment(), "SECRETS_AGENTCORE_NOTES": resting.notes}
    resting.service.remember(resting.notes, f"/users/{who}/preferences", "My cat is called Miso.")
    result = files.run("chat", "--actor", who, typed="What is my cat called?\nAnd?\n", **more)
    assert 'I remember: "My cat is called Miso."' in result.stdout
    assert resting.service.calls.count("GetMemory") == 1
    asked = {
        (call.given["namespace"], call.given["searchCriteria"]["topK"])
        for call in resting.service.calls.of("RetrieveMemoryRecords")
    }
    assert asked == {(f"/users/{who}/facts/", 40), (f"/users/{who}/preferences/", 40)}
    assert len(resting.said(resting.notes, who)) == 4, "chat records before it ends"


@pytest.mark.usual("strands-typescript")
def test_a_project_needs_its_id(resting: Agent, target: Target, tmp_path: Path) -> None:
    team = {"/projects/{projectId}/facts": (3, 0.4)}
    files = Files(target, tmp_path, collection("team", "project", team))
    more = {**resting.service.environment(), "SECRETS_AGENTCORE_TEAM": resting.team}
    for given in ({}, {"PROJECT_ID": "Apollo!"}):
        result = files.run("chat", "--actor", "ada", typed="Hello.\n", **more, **given)
        assert result.returncode == 1
        assert "PROJECT_ID" in result.stderr + result.stdout
    assert resting.service.calls.count() == 0
    more["PROJECT_ID"] = PROJECT
    assert files.run("chat", "--actor", "ada", typed="Hello.\n", **more).returncode == 0
