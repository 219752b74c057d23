"""`erase-project` erases a project's memories, and nothing of projects that share a memory."""

import subprocess
from pathlib import Path

import pytest

from tests.conformance.targets import Target
from tests.memory.agents import PROJECT, Agent, Home, collection, of

OTHER = "/projects/gemini/facts"
UNSHARED = ("--unshared", "notes", "--unshared", "team")


def name_of(agent: Agent) -> str:
    (file,) = (agent.home.folder / "agents").glob("*.agent.md")
    return f"{file.name.partition('.')[0]}/{PROJECT}"


def erase(agent: Agent, *words: str, name: str = "") -> subprocess.CompletedProcess[str]:
    return agent.run("erase-project", "--yes", name or name_of(agent), *words)


def fill(agent: Agent, who: str) -> None:
    """A turn of this project, and a record of another project in the same memory."""
    assert agent.chat(who).say("The tea is green.").turn == 1
    agent.idle()
    agent.service.remember(agent.team, f"/projects/{PROJECT}/facts/deep", "Deep.")
    agent.service.remember(agent.team, OTHER, "Theirs.")


@pytest.mark.usual("strands-python-valkey", "vercel-typescript-valkey", "strands-typescript-alone")
def test_a_project_is_erased_and_a_project_in_the_same_memory_stays(agent: Agent, who: str) -> None:
    fill(agent, who)
    texts = agent.service.service.texts
    for wrong in (name_of(agent).partition("/")[0], f"{name_of(agent)}x"):
        done = erase(agent, name=wrong)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert "Nothing was erased." in done.stderr
        assert done.stderr.startswith("Error: "), "no usage"
    for id in ("unknown", "sessions"):
        unknown = erase(agent, "--unshared", id)
        assert unknown.returncode == 2, unknown
        assert f"Collection {id} is not a memory of this agent." in unknown.stderr
    assert agent.service.calls.count("ListMemoryRecords") == 0
    assert len(texts(agent.team, f"/projects/{PROJECT}")) > 1

    done = erase(agent)
    assert done.returncode == 1, done
    assert f"erased: records of collection team of project {PROJECT} in " in done.stdout
    assert "not erased: events of collection notes of every PROJECT_ID in " in done.stdout
    assert "Run the command again." not in done.stderr, "the rest stays"
    assert "add --unshared notes" in done.stdout
    assert texts(agent.team, f"/projects/{PROJECT}") == []
    assert texts(agent.team, OTHER) == ["Theirs."]
    assert texts(agent.notes, f"/users/{who}") != [], "another project may use them"
    assert agent.said(agent.notes, who) != []
    if agent.store:
        assert "  sessions of every PROJECT_ID in " in done.stdout
        assert agent.store.everything() == "{}"

    done = erase(agent, *UNSHARED)
    assert done.returncode == 0, done
    assert "note: records of the last turns may still be extracted" in done.stdout
    assert texts(agent.notes, f"/users/{who}") == []
    for memory in (agent.notes, agent.team):
        assert agent.said(memory, who) == []
    assert texts(agent.team, OTHER) == ["Theirs."], "a path that names another project"

    again = erase(agent, *UNSHARED)
    assert again.returncode == 0, again
    assert "there is nothing to erase" in again.stdout


@pytest.mark.full
def test_records_outside_the_templates_stay_and_are_named(agent: Agent, who: str) -> None:
    texts, remember = agent.service.service.texts, agent.service.remember
    assert erase(agent, *UNSHARED).returncode == 0, "others used this memory before"
    earlier = {agent.notes: f"/people/{who}/", agent.team: "/strategies/deleted/"}
    for memory, path in earlier.items():
        remember(memory, path, "Of an earlier template.")
    done = erase(agent)
    assert done.returncode == 1, done
    assert "there is nothing to erase" in done.stdout
    for id in ("notes", "team"):
        stock = f"not erased: records of collection {id} in namespaces that its file does not name"
        assert f"{stock} in the AgentCore memory of " in done.stdout
    assert all(texts(memory, path) for memory, path in earlier.items())
    done = erase(agent, *UNSHARED)
    assert done.returncode == 0, done
    assert not any(texts(memory, path) for memory, path in earlier.items())


@pytest.mark.usual("vercel-python-alone", "strands-typescript-alone")
def test_a_path_with_two_readings_stays_and_is_named(
    resting: Agent, target: Target, tmp_path: Path, who: str
) -> None:
    memory = resting.service.add_memory(who.replace("-", "_"), "semantic:/users/{actorId}")
    home = Home(target, tmp_path)
    home.sessions.unlink(missing_ok=True)
    namespaces = {f"/users/{{actorId}}/{{{name}}}": (3, 0.4) for name in ("projectId", "sessionId")}
    home.declare(collection("notes", "user", namespaces))
    variables = {**resting.service.environment(), "SECRETS_AGENTCORE_NOTES": memory}
    resting.service.remember(memory, "/users/ada/s-1/", "Of a session.")
    command = ("erase-project", "--yes", f"my-agent/{PROJECT}", "--unshared", "notes")
    done = home.run(*command, PROJECT_ID=PROJECT, **variables)
    assert done.returncode == 1, done
    stock = "not erased: records of collection notes in namespaces that may name another project in"
    assert stock in done.stdout
    assert resting.service.service.texts(memory) == ["Of a session."]


@pytest.mark.full
@pytest.mark.usual("vercel-python-alone", "strands-typescript-alone")
def test_a_record_of_a_deleted_strategy_can_name_its_project(
    resting: Agent, target: Target, tmp_path: Path, who: str
) -> None:
    memory = resting.service.add_memory(who.replace("-", "_"), "semantic:/users/{actorId}")
    home = Home(target, tmp_path)
    home.sessions.unlink(missing_ok=True)
    template = "/strategies/{memoryStrategyId}/projects/{projectId}"
    home.declare(collection("team", "project", {template: (3, 0.4)}))
    for project in (PROJECT, "gemini"):
        path = f"/strategies/old-0123456789/projects/{project}"
        resting.service.remember(memory, path, f"Of {project}.")
    variables = {**resting.service.environment(), "SECRETS_AGENTCORE_TEAM": memory}
    command = ("erase-project", "--yes", f"my-agent/{PROJECT}", "--unshared", "team")
    done = home.run(*command, PROJECT_ID=PROJECT, **variables)
    assert done.returncode == 0, done
    assert resting.service.service.texts(memory) == ["Of gemini."]


@pytest.mark.usual("strands-python-valkey", "vercel-typescript-valkey")
def test_a_memory_that_cannot_be_listed_is_named_even_if_its_data_stays(agent: Agent) -> None:
    agent.service.faults.deny("ListActors", where=of(agent.notes))
    done = erase(agent)
    assert done.returncode == 1, done
    stock = "  events of collection notes of every PROJECT_ID in "
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(stock)]
    assert ": cannot be counted: " in line


@pytest.mark.full
def test_a_failure_of_the_service_is_named_and_a_second_run_goes_on(agent: Agent, who: str) -> None:
    fill(agent, who)
    for _ in range(3):
        deep = [f"Deep {number}." for number in range(90)]
        agent.service.remember(agent.team, f"/projects/{PROJECT}/facts/deep", *deep)
    agent.service.service.frail_tokens = True
    agent.service.faults.deny("BatchDeleteMemoryRecords", where=of(agent.notes))
    done = erase(agent, *UNSHARED)
    assert done.returncode == 1, done
    assert "failed: records of collection notes " in done.stdout
    assert " left: " in done.stdout
    assert "Run the command again." in done.stderr
    assert agent.service.service.texts(agent.team, f"/projects/{PROJECT}") == []
    assert agent.service.service.texts(agent.notes, f"/users/{who}") != []
    agent.service.faults.clear()
    again = erase(agent, *UNSHARED)
    assert again.returncode == 0, again
    assert agent.service.service.texts(agent.notes, f"/users/{who}") == []


@pytest.mark.full
@pytest.mark.usual("strands-python-valkey", "vercel-typescript-valkey")
def test_a_service_that_is_down_does_not_keep_the_sessions(agent: Agent, who: str) -> None:
    fill(agent, who)
    agent.down()
    done = erase(agent, *UNSHARED)
    assert done.returncode == 1, done
    assert "cannot be counted" in done.stdout
    assert "failed: events of collection notes of every PROJECT_ID in " in done.stdout
    if agent.store:
        assert agent.store.everything() == "{}"
    agent.up()
    assert erase(agent, *UNSHARED).returncode == 0
    assert agent.said(agent.notes, who) == []


@pytest.mark.usual("vercel-python-alone", "strands-typescript-alone")
def test_the_files_of_a_trial_are_erased(target: Target, tmp_path: Path) -> None:
    home = Home(target, tmp_path)
    for actor in ("robin", "olive:x"):
        done = home.run("chat", "--actor", actor, typed="My cat is called Miso.\n")
        assert done.returncode == 0, done
    assert "Miso" in home.local()
    earlier = home.folder / ".memory" / "earlier.jsonl"
    earlier.write_text(home.local())
    asked = home.run("erase-project", typed="my-agent \n")
    assert asked.returncode == 1, asked
    assert "erased: events of collection memories in .memory/memories.jsonl: 2\n" in asked.stdout
    assert "collection memories in its memory: set SECRETS_" in asked.stdout
    assert "Miso" not in home.local()
    assert "robin" not in home.local()
