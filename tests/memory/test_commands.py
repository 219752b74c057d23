"""The command line of an owner: a trial without an account, forget, iam, check, and the start."""

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conformance.steps import Hold
from tests.conformance.targets import Target
from tests.memory.agents import NOTES, PROJECT, Agent, Home, collection, of, unique

RENDERED = ("/facts/{actorId}", "/preferences/{actorId}")  # of the collection that is rendered
SECRET = "SECRETS_AGENTCORE_MEMORIES"
LOCAL = {
    "python": "You are local-user. Use `--actor ID` for another actor.\n",
    "typescript": "You are local-user. Use `-- --actor ID` for another actor.\n",
}
ABOUT_RESOURCES = {"AML-E112", *(f"AML-W24{number}" for number in "34567")}
# A model that is never called, so that nothing stands in for what is not set.
MODEL = {"MODEL": "test-model", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "x"}


@pytest.fixture
def trial(target: Target, tmp_path: Path) -> Home:
    """Commands in a folder as it is rendered, in which nothing is set but what is given."""
    return Home(target, tmp_path)


@pytest.fixture
def files(trial: Home) -> Home:
    """A folder whose sessions live in the process, for collections of a test."""
    trial.sessions.unlink(missing_ok=True)
    return trial


@pytest.mark.usual("strands-python-alone", "vercel-typescript-alone")
def test_a_trial_needs_no_account(trial: Home) -> None:
    first = trial.run("chat", "--actor", "robin", typed="My cat is called Miso.\n")
    assert first.returncode == 0, first
    assert ".memory" in first.stdout, "it says where it is remembered"
    second = trial.run("chat", "--actor", "robin", typed="What is my cat called?\n")
    assert 'I remember: "My cat is called Miso."' in second.stdout
    assert (trial.folder / ".memory" / ".gitignore").read_text().strip() == "*"
    assert "robin" in trial.local()
    with (trial.folder / ".memory" / "memories.jsonl").open("a") as file:
        file.write('{"event": "torn')
    trial.run("chat", "--actor", "robin", typed="Thank you.\n")
    forgotten = trial.run("forget", "--actor", "robin", "--json")
    assert forgotten.returncode == 0, forgotten
    assert json.loads(forgotten.stdout)["events"] == 3, "a torn line takes none with it"
    assert "robin" not in trial.local()
    assert "Miso" not in trial.local()


@pytest.mark.full
def test_a_full_disk_keeps_whole_turns_or_none(trial: Home) -> None:
    """A part of an event with its token would pass for the whole."""
    chat, brief = ("chat", "--actor", "robin"), {"SHUTDOWN_GRACE_SECONDS": "1"}
    assert trial.run(*chat, typed="My cat is called Miso.\n").returncode == 0
    kept = trial.local()
    full = trial.run(*chat, typed=f"{'Long. ' * 1500}\n", disk="8", **brief)
    assert "turns not recorded: 1" in full.stderr, full
    assert trial.local() == kept
    again = trial.run("forget", "--actor", "robin", "--json", disk="8")
    assert json.loads(again.stdout)["events"] == 1, again
    assert not [*(trial.folder / ".memory").glob("*.tmp")]


@pytest.mark.full
@pytest.mark.usual("vercel-python-alone", "strands-typescript-alone")
def test_a_trial_recalls_new_records_once_and_facts_before_questions(trial: Home) -> None:
    said = ["My cat is called Otto."] * 45 + ["My cat is called Miso."]
    said += [f"What was my cat called in year {number}?" for number in range(45)]
    said += ["Can you remember that my cat is called the boss?"]
    chat = ("chat", "--actor", "robin")
    assert trial.run(*chat, typed="".join(f"{text}\n" for text in said)).returncode == 0
    reply = trial.run(*chat, typed="What is my cat called?\n").stdout
    recalled = re.findall('I remember: "([^"]*)"', reply)
    assert recalled[:3] == ["My cat is called Miso.", "My cat is called Otto.", said[-1]]


@pytest.mark.full
@pytest.mark.usual("strands-python-valkey", "vercel-typescript-alone")
def test_chat_needs_no_actor(trial: Home) -> None:
    nobody = trial.run("chat", typed="My cat is called Miso.\n")
    assert nobody.returncode == 0, nobody
    assert LOCAL[trial.target.name.partition("-")[2]] in nobody.stdout
    robin = trial.run("chat", "--actor", "robin", typed="What is my cat called?\n")
    assert "local-user" not in robin.stdout
    assert "I remember" not in robin.stdout
    assert '"My cat is called Miso."' in trial.run("chat", typed="What is my cat called?\n").stdout


@pytest.mark.full
@pytest.mark.usual("strands-python-alone", "vercel-typescript-valkey")
def test_a_trial_keeps_people_apart(trial: Home) -> None:
    for name, text in (("robin", "My cat is called Miso."), ("olive", "What is my cat called?")):
        result = trial.run("chat", "--actor", name, typed=f"{text}\n")
        assert "I remember" not in result.stdout
    assert trial.run("forget", "--actor", "robin").returncode == 0
    assert "robin" not in trial.local()
    assert "Miso" not in trial.local()
    assert "What is my cat called?" in trial.local(), "of olive"


@pytest.mark.usual("strands-python-valkey", "vercel-typescript-valkey")
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
    assert report["actor"] == who
    assert report["could_not"] == []
    assert report["events"] == 8, "of four turns in two memories"
    assert report["records"] >= 8
    notes = "".join(report["notes"])
    assert "shared by all users" in notes, "what is the project's cannot be told apart"
    assert agent.service.service.texts(agent.notes, f"/users/{who}") == []
    for memory in (agent.notes, agent.team):
        assert agent.said(memory, who) == []
        assert len(agent.said(memory, f"{who}2")) == 4
    if agent.store:
        assert report["sessions"] == 2
        kept = [agent.store.snapshot(chat.session) is not None for chat in chats]
        assert kept == [False, False, True]
    else:
        assert report["sessions"] == 0
        assert "no session store was searched: sessions are in process memory" in notes
    assert sorted(agent.service.service.texts(agent.notes, f"/users/{who}2")) == theirs


@pytest.mark.full
@pytest.mark.usual("vercel-python-valkey", "strands-typescript-alone")
def test_forget_reports_its_failures(agent: Agent, who: str) -> None:
    chat = agent.chat(who)
    assert chat.say("The tea is green.").turn == 1
    agent.idle()
    agent.service.faults.deny("DeleteEvent", where=of(agent.notes))
    agent.service.faults.fail("ListSessions", times=None, where=of(agent.team))
    result = agent.run("forget", "--actor", who)
    assert result.returncode == 1, result
    denied = [call for call in agent.service.calls.of("DeleteEvent") if of(agent.notes)(call.given)]
    assert len(denied) == 1, "it cannot succeed, so it is not tried again"
    assert re.search("failed: events of collection notes: .*AccessDenied", result.stdout)
    assert re.search("failed: events of collection team: .*503", result.stdout)
    assert "events erased: 0" in result.stdout
    if agent.store:
        assert agent.store.snapshot(chat.session) is None, "the rest was erased"
    assert agent.service.service.texts(agent.notes, f"/users/{who}") == []
    agent.service.faults.clear()
    assert agent.run("forget", "--actor", who).returncode == 0
    assert agent.said(agent.notes, who) == agent.said(agent.team, who) == []


@pytest.mark.usual("strands-python-valkey", "vercel-typescript-alone")
def test_forget_goes_on_until_nothing_is_left(agent: Agent, who: str) -> None:
    agent.learn_nothing()
    chat, facts = agent.chat(who), f"/users/{who}/facts"
    assert chat.say("The tea is green.").status == 200
    agent.idle()
    agent.service.remember(agent.notes, facts, *(f"Fact {number}." for number in range(250)))
    agent.service.calls.clear()
    event = agent.service.faults.hold("DeleteEvent", where=of(agent.notes))
    page = agent.service.faults.hold("BatchDeleteMemoryRecords")
    agent.service.faults.fail("BatchDeleteMemoryRecords")
    with ThreadPoolExecutor() as pool:
        running = pool.submit(agent.run, "forget", "--actor", who, "--json")
        event.wait_reached()
        assert chat.say("It is hot.").status == 200
        agent.idle()
        event.release()
        page.wait_reached()
        lists = [call.given for call in agent.service.calls.of("ListMemoryRecords")]
        below = [given for given in lists if given["namespacePath"] != "/"]
        assert len(below) == 1, "a page is deleted at once"
        agent.service.remember(agent.notes, facts, "The newest fact.")
        page.release()
        result = running.result()
    assert result.returncode == 0, result
    report = json.loads(result.stdout)
    assert (report["events"], report["records"]) == (4, 251), "what was made meanwhile, too"
    assert agent.said(agent.notes, who) == agent.said(agent.team, who) == []


@pytest.mark.usual("strands-python-alone", "vercel-typescript-alone")
def test_forget_deletes_nothing_where_a_collection_is_read_only(
    resting: Agent, files: Home, who: str
) -> None:
    service, facts = resting.service, f"/users/{who}/facts"
    service.remember(resting.notes, facts, "Tea.")
    text = collection("notes", "user", {"/users/{actorId}/facts": (3, 0.4)})
    files.declare(text.replace("enabled: true", "enabled: false"))
    for path in (*files.folder.glob("agents/*"), *files.folder.glob("iam/*")):
        written = path.read_text().replace("read-write", "read")
        path.write_text(re.sub("write_collections: .*", "write_collections: []", written))
    more = {**service.environment(), "SECRETS_AGENTCORE_NOTES": resting.notes}
    for failures, reasons in ((0, ["it is read-only here"]), (6, ["503", "503"])):
        if failures:
            service.faults.fail("ListMemoryRecords", times=failures)
        result = files.run("forget", "--actor", who, "--json", **more)
        assert result.returncode == 1, result
        failed = json.loads(result.stdout)["could_not"]
        assert len(failed) == len(reasons), failed
        assert all(reason in text for reason, text in zip(reasons, failed, strict=True))
        assert service.service.texts(resting.notes, facts) == ["Tea."]


@pytest.mark.usual("strands-python-alone", "vercel-typescript-alone")
def test_forget_finds_records_of_deleted_strategies_and_earlier_templates(
    resting: Agent, files: Home, who: str
) -> None:
    service, old = resting.service, "/strategies/old-0123456789"
    templates = ["/users/{actorId}", "/of/{tenant}/{actorId}", "/pairs/{actorId}-{sessionId}"]
    templates += ["/team/{actorId}", f"/team/{who}/all"]
    strategies = [f"semantic:{template}" for template in templates]
    # Of the actor x of this strategy, the namespace is the default namespace of `who`.
    strategies.append(f"semantic:/strategies/{{memoryStrategyId}}/actors/{who[:-1]}{{actorId}}")
    memory = service.add_memory(who.replace("-", "_"), *strategies, keys=("tenant",))
    described = service.service.memories[memory].description["strategies"]
    live = f"/strategies/{described[-1]['strategyId']}/actors"
    own = [f"/users/{who}", f"{old}/actors/{who}", f"{old}/actors/{who}/sessions/s-1"]
    own.append(f"/facts/old-0123456789/of-{who}")
    unknown = [f"/of/acme/{who}", f"/pairs/{who}-1/{who}", f"/people/{who}"]
    unknown += [f"{old}/actors/{who}2/sessions/{who}", f"/team/{who}/earlier"]
    unknown += [f"{old}/actors/of-{who}"]  # perhaps in the default namespace
    unknown += [f"{live}/{who[:-1]}{who}", f"{live}/{who}"]  # perhaps from before an UpdateMemory
    unknown += [f"/pairs/{who}-01890000-aaaa", f"/pairs/{who}-2-s1"]  # perhaps of {who}-2
    others = [f"{old}/actors/{who}2", f"{old}/actors/{who[:-1]}", f"/people/{who}2", "/people"]
    others += [f"/facts/old-0123456789/of-{who}2", f"/pairs/{who}2-s1", f"/pairs/of-{who}-s1"]
    for path in (*own, *unknown, *others):
        service.remember(memory, path, path)
    declared = ["/users/{actorId}", "/facts/{memoryStrategyId}/of-{actorId}"]
    declared += ["/strategies/{memoryStrategyId}/actors/of-{actorId}"]
    files.declare(collection("notes", "user", dict.fromkeys(declared, (3, 0.4))))
    more = {**service.environment(), "SECRETS_AGENTCORE_NOTES": memory}
    for erased in (4, 0):
        result = files.run("forget", "--actor", who, "--json", **more)
        report = json.loads(result.stdout)
        assert (result.returncode, report["records"]) == (1, erased), result
        failed = report["could_not"]
        assert [text.split()[2] for text in failed] == sorted(f"{path}/" for path in unknown)
        assert set(service.service.texts(memory)) == {*unknown, *others}
    service.faults.deny("ListMemoryRecords", where=of(memory, namespacePath="/"))
    denied = files.run("forget", "--actor", who, "--json", **more)
    (failure,) = json.loads(denied.stdout)["could_not"]
    assert denied.returncode == 1, denied
    assert "AccessDenied" in failure


@pytest.mark.usual("strands-python-alone", "vercel-typescript-alone")
def test_forget_erases_only_records_that_are_certainly_of_the_actor(files: Home) -> None:
    templates = ["/u/{actorId}", "/in/{projectId}/{actorId}", "/by/{sessionId}/{actorId}"]
    templates += ["/u/of-{actorId}", "/at/{sessionId}/of-{actorId}", "/local/{actorId}"]
    templates += ["/strategies/{memoryStrategyId}/of-{actorId}"]
    templates += ["/{memoryStrategyId}/{sessionId}/{actorId}"]
    files.declare(collection("notes", "user", dict.fromkeys(templates, (3, 0.4))))
    paths = {
        "/u/ada/": "",
        "/u/ada/below/": "",
        "/in/apollo/ada/": "",
        "/by/s-9/ada/below/": "",  # no event names this session any more
        "/at/s-9/of-ada/": "",
        "/strategies/local/of-ada/": "",
        "/in/gemini/ada/": "they may belong to another",
        "/u/bob/ada/": "they may belong to another",
        "/u/of-ada/": "they may belong to another",
        "/local/ada/bob/": "they may belong to another",
        "/old/ada/": "its file does not name this namespace",
        "/u/ada2/": "not reported",
        "/at/s-9/of-ada2/": "not reported",
        "/by/ada/bob/": "not reported",
        "/in/ada/bob/": "not reported",
    }
    rows = [{"record": path, "namespace": path, "text": "", "at": ""} for path in paths]
    file = files.folder / ".memory" / "notes.jsonl"
    file.parent.mkdir()
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    done = files.run("forget", "--actor", "ada", "--json", PROJECT_ID=PROJECT)
    left = [json.loads(line)["record"] for line in file.read_text().splitlines()]
    assert left == [path for path, reason in paths.items() if reason]
    reported = {path: text for path, text in paths.items() if text not in ("", "not reported")}
    failed = sorted(json.loads(done.stdout)["could_not"])
    assert (done.returncode, len(failed)) == (1, len(reported)), done
    for text, (path, reason) in zip(failed, sorted(reported.items()), strict=True):
        assert text.startswith(f"records in {path} of collection notes: {reason}")


@pytest.mark.full
def test_forget_erases_reflections_on_episodes(resting: Agent, files: Home, who: str) -> None:
    service = resting.service
    reflected = {"namespaceTemplates": ["/reflections/{actorId}"]}
    episodic = {"name": "episodes", "namespaceTemplates": ["/episodes/{actorId}/{sessionId}"]}
    strategy = {"episodicMemoryStrategy": {**episodic, "reflectionConfiguration": reflected}}
    given = {"name": unique("episodes").replace("-", "_"), "eventExpiryDuration": 90}
    made = service.service.call("CreateMemory", {**given, "memoryStrategies": [strategy]})
    memory = made["memory"]["id"]
    # The first page is deleted before the next one is asked for, whose token dies with it.
    service.service.frail_tokens = True
    service.remember(memory, f"/reflections/{who}", *(f"Lesson {n}." for n in range(230)))
    service.remember(memory, f"/reflections/{who}2", "Of another.")
    files.declare(collection("notes", "user", {"/episodes/{actorId}/*": (3, 0.4)}))
    more = {**service.environment(), "SECRETS_AGENTCORE_NOTES": memory}
    result = files.run("forget", "--actor", who, "--json", **more)
    assert result.returncode == 0, result
    assert json.loads(result.stdout)["records"] == 230
    assert service.service.texts(memory) == ["Of another."]
    assert len(service.take_violations()) == 2, "two tokens had died"


@pytest.mark.full
@pytest.mark.usual("strands-python-valkey", "vercel-typescript-valkey", "vercel-python-alone")
def test_jobs_of_an_actor_that_is_forgotten_are_not_recorded(
    agent: Agent, who: str, gate: threading.Event
) -> None:
    agent.learn_nothing()
    waiting, running, other = agent.chat(who), agent.chat(who), agent.chat(f"{who}2")
    agent.service.faults.fail("CreateEvent", times=None)
    assert [chat.say("The tea is green.").turn for chat in (waiting, other)] == [1, 1]
    reply = running.start("It is hot.", [Hold(gate), "So it is."])
    running.call("It is hot.")
    report = json.loads(agent.run("forget", "--actor", who, "--json").stdout)
    agent.service.faults.clear()
    gate.set()
    assert reply.reply().turn == 1
    agent.idle()
    for memory in (agent.notes, agent.team):
        assert len(agent.said(memory, f"{who}2")) == 2, "of another actor"
        assert len(agent.said(memory, who)) == (0 if agent.store else 4)
    assert agent.chat(who).say("It is cold.").turn == 1
    agent.idle()
    for memory in (agent.notes, agent.team):
        assert len(agent.said(memory, who)) == (2 if agent.store else 6), "what is new"
    notes = "".join(report["notes"])
    assert "run this again" in notes
    assert ("are recorded later" in notes) == (agent.store is None)


@pytest.mark.full
def test_new_turns_are_recorded_although_older_ones_were_forgotten(agent: Agent, who: str) -> None:
    agent.learn_nothing()
    agent.service.faults.fail("CreateEvent", times=None)
    chat = agent.chat(who)
    for text in ("The tea is green.", "It is hot."):  # the second waits, to be joined to others
        chat.say(text)
    assert agent.run("forget", "--actor", who).returncode == 0
    assert chat.say("It is cold.").turn == 1 or agent.store is None
    agent.service.faults.clear()
    agent.idle()
    texts = [text for role, text in agent.said(agent.notes, who) if role == "USER"]
    assert [text.partition(" canary")[0] for text in texts][-1:] == ["It is cold."]
    assert len(texts) == (1 if agent.store else 3)


@pytest.mark.full
def test_forget_says_that_the_service_is_down(agent: Agent, who: str) -> None:
    agent.down()
    result = agent.run("forget", "--actor", who)
    assert result.returncode == 1, result
    assert "failed: events of collection notes" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr


@pytest.mark.usual("vercel-python-alone", "vercel-typescript-alone")
def test_forget_takes_no_id_that_cannot_be_one(trial: Home) -> None:
    refused = trial.run("forget", "--actor", "robin@example.com")
    assert refused.returncode == 2
    assert "SHA-256" in refused.stdout + refused.stderr
    assert trial.run("forget").returncode == 2


@pytest.mark.full
@pytest.mark.usual("strands-python-valkey", "strands-typescript-alone")
def test_iam_prints_exactly_the_used_actions(trial: Home) -> None:
    printed = trial.run("iam")
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
    assert recall["Resource"][0].endswith(f"memory/${{{SECRET}}}")
    assert trial.run("iam", "--save").returncode == 0
    saved = trial.folder / "iam" / "my-agent.policy.json"
    assert json.loads(saved.read_text()) == policy
    assert "AML-W248" not in trial.run("check").stdout
    file = trial.folder / "collections" / "memories.collection.md"
    file.write_text(file.read_text().replace("/preferences/{actorId}", "/likes/{actorId}"))
    assert "AML-W248" in trial.run("check").stdout


@pytest.mark.full
@pytest.mark.usual("vercel-python-alone", "strands-typescript-alone", "vercel-typescript-valkey")
def test_forget_and_iam_need_no_model_that_is_set_up(resting: Agent, files: Home, who: str) -> None:
    files.declare(collection("notes", "user", NOTES))
    more = {**resting.service.environment(), "SECRETS_AGENTCORE_NOTES": resting.notes}
    more["MODEL"] = "test-model"  # but no key
    assert files.run("check", **more).returncode == 1
    assert files.run("chat", typed="Hello.\n", **more).returncode == 1
    for command in (("iam",), ("forget", "--actor", who)):
        result = files.run(*command, **more)
        assert result.returncode == 0, result


@pytest.mark.full
@pytest.mark.usual("vercel-python-valkey", "strands-typescript-alone")
def test_check_looks_at_the_memory_when_it_is_asked_to(resting: Agent, trial: Home) -> None:
    more, add, calls = (
        resting.service.environment(),
        resting.service.add_memory,
        resting.service.calls,
    )
    fitting = add(unique("fits").replace("-", "_"), *(f"semantic:{one}" for one in RENDERED))
    other = add(unique("other").replace("-", "_"), f"semantic:{RENDERED[0]}")
    assert findings(trial, more, fitting) == {}
    assert calls.count() == 0, "check alone needs no network"
    for memory, wrong in (
        (fitting, set()),
        (other, {"AML-W244"}),
        ("absent-0123456789", {"AML-E112"}),
    ):
        found = findings(trial, more, memory, "--connect")
        assert set(found) == wrong
        assert all(
            f"they write to {RENDERED[0]}" in text for id, text in found.items() if id == "AML-W244"
        )
    resting.service.faults.deny("GetMemory")
    (denied,) = findings(trial, more, fitting, "--connect").items()
    assert denied[0] == "AML-W247"
    assert "AccessDenied" in denied[1]
    # Nothing is called without credentials, and that is told.
    calls.clear()
    unseen = findings(trial, {}, fitting, "--connect")
    assert list(unseen) == ["AML-W247"]
    assert "AWS credentials are missing" in unseen["AML-W247"]
    assert calls.count() == 0


def findings(home: Home, variables: dict[str, str], memory: str, *options: str) -> dict[str, str]:
    """What is found about the resource, by ids; only an error is a status of 1."""
    result = home.run("check", "--json", *options, **variables, **{SECRET: memory})
    found = json.loads(result.stdout)["diagnostics"]
    assert result.returncode == any(one["severity"] == "error" for one in found)
    return {one["id"]: one["message"] for one in found if one["id"] in ABOUT_RESOURCES}


@pytest.mark.full
def test_a_missing_secret_is_reported_at_the_start(files: Home) -> None:
    files.declare(collection("notes", "user", NOTES))
    assert files.run("check", **MODEL).returncode == 0
    result = files.run("chat", "--actor", "robin", typed="Hello.\n", **MODEL)
    assert result.returncode == 1
    assert "secrets/agentcore/notes" in result.stderr
    assert "SECRETS_AGENTCORE_NOTES" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.usual("vercel-python-alone", "vercel-typescript-valkey")
def test_two_collections_that_write_to_one_memory_are_no_start(resting: Agent, files: Home) -> None:
    other = {"/others/{actorId}": (2, 0.5)}
    files.declare(collection("notes", "user", NOTES), collection("more", "user", other))
    more = resting.service.environment()
    ids = {"SECRETS_AGENTCORE_NOTES": resting.notes, "SECRETS_AGENTCORE_MORE": resting.notes}
    result = files.run("chat", "--actor", "robin", typed="Hello.\n", **more, **ids)
    assert result.returncode == 1
    assert "collections notes and more write to the same memory" in result.stderr
    ids["SECRETS_AGENTCORE_MORE"] = resting.team
    result = files.run("chat", "--actor", "robin", typed="Hello.\n", **more, **ids)
    assert result.returncode == 0, result


@pytest.mark.usual("vercel-python-alone", "vercel-typescript-alone")
def test_without_namespaces_those_of_the_resource_are_read(
    resting: Agent, files: Home, who: str
) -> None:
    files.declare(collection("notes", "user", None))
    more = {**resting.service.environment(), "SECRETS_AGENTCORE_NOTES": resting.notes}
    resting.service.remember(resting.notes, f"/users/{who}/preferences", "My cat is called Miso.")
    typed = "What is my cat called?\nAnd?\n"
    more["RECALL_TIMEOUT_SECONDS"], more["RECALL_OVERFETCH"] = "20", "3"
    result = files.run("chat", "--actor", who, typed=typed, **more)
    assert 'I remember: "My cat is called Miso."' in result.stdout
    assert resting.service.calls.count("GetMemory") == 1
    asked = {
        (call.given["namespace"], call.given["searchCriteria"]["topK"])
        for call in resting.service.calls.of("RetrieveMemoryRecords")
    }
    assert asked == {(f"/users/{who}/facts/", 30), (f"/users/{who}/preferences/", 30)}
    assert len(resting.said(resting.notes, who)) == 4, "chat records before it ends"


@pytest.mark.usual("vercel-python-alone", "vercel-typescript-alone")
def test_a_project_needs_its_id(resting: Agent, files: Home) -> None:
    files.declare(collection("team", "project", {"/projects/{projectId}/facts": (3, 0.4)}))
    more = {**resting.service.environment(), "SECRETS_AGENTCORE_TEAM": resting.team}
    for given in ({}, {"PROJECT_ID": "Apollo!"}):
        result = files.run("chat", "--actor", "robin", typed="Hello.\n", **more, **given)
        assert result.returncode == 1
        assert "PROJECT_ID" in result.stderr
    assert resting.service.calls.count() == 0
    more["PROJECT_ID"] = PROJECT
    result = files.run("chat", "--actor", "robin", typed="Hello.\n", **more)
    assert result.returncode == 0, result
