"""A knowledge base as a memory: what is found, kept, repeated, refused and forgotten, and whose."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bedrock.agents import SETTINGS, Agent, declared, shown, variables
from tests.conformance.chat import Chat
from tests.conformance.server import Server
from tests.conformance.steps import CUT, Call, End, Hold, Refuse, Step
from tests.conformance.targets import Target
from tests.memory.agents import PROJECT, Home
from tests.stores.servers import wait_for

INGEST, FIND = "IngestKnowledgeBaseDocuments", "Retrieve"
CAT, QUESTION = "My cat is called Miso.", "What is my cat called?"


def test_facts_of_committed_turns_are_found_for_their_actor_alone(agent: Agent, who: str) -> None:
    assert agent.chat(who).say(CAT).turn == 1
    agent.idle()
    assert agent.kept(who) == [CAT], "the reply and the words around it are no facts"
    (stored,) = agent.bedrock.calls.of(INGEST)
    (document,) = stored.given["documents"]
    attributes = {it["key"]: it["value"] for it in document["metadata"]["inlineAttributes"]}
    assert attributes["namespace"]["stringValue"] == f"/users/{who}/facts/"
    for name, expected in ((who, [CAT]), (f"{who}2", []), (who[:-1], [])):
        chat = agent.chat(name)
        chat.say(QUESTION)
        assert shown(agent.provider, chat, QUESTION) == expected
    (request, *_) = agent.bedrock.calls.of(FIND)[1:]
    search = request.given["retrievalConfiguration"]["vectorSearchConfiguration"]
    assert search["filter"] == {"equals": {"key": "namespace", "value": f"/users/{who}/facts/"}}


def test_a_failed_turn_leaves_no_fact(agent: Agent, who: str) -> None:
    chat = agent.chat(who)
    assert chat.say(CAT, [Call("no_such_tool", {})], endless=True).status != 200
    agent.idle()
    assert agent.bedrock.calls.of(INGEST) == []
    assert agent.kept(who) == []


@pytest.mark.full
@pytest.mark.usual("vercel-python", "strands-typescript")
def test_a_repetition_is_harmless_and_asks_the_model_once(agent: Agent, who: str) -> None:
    faults = agent.bedrock.faults
    faults.lose_reply(INGEST)
    faults.error(INGEST, "ThrottlingException")
    faults.fail(INGEST, 503)
    before = len(agent.provider.summaries())
    assert agent.chat(who).say(CAT).turn == 1
    agent.idle()
    assert agent.bedrock.calls.count(INGEST) == 4
    assert agent.kept(who) == [CAT]
    assert len(agent.provider.summaries()) == before + 1


def test_a_fact_that_is_added_is_kept_as_it_is(agent: Agent, who: str) -> None:
    text = "Robin likes green tea."
    chat = agent.chat(who)
    step = [Call("add_memory", {"entries": [text]})]
    chat.say("Remember this.", step, ["Done."])
    agent.idle()
    assert agent.kept(who) == [text]


def test_others_are_not_shown_by_a_service_that_leaks(agent: Agent, who: str) -> None:
    agent.bedrock.remember(agent.base, f"/users/{who}2/facts/", "The cat of another.")
    agent.bedrock.service.leaks = True
    chat = agent.chat(who)
    chat.say(QUESTION)
    assert shown(agent.provider, chat, QUESTION) == []


@pytest.mark.usual("vercel-python", "strands-typescript")
def test_a_service_that_is_down_slow_or_closed_costs_no_turn(agent: Agent, who: str) -> None:
    server = agent.fresh(RECALL_TIMEOUT_SECONDS=1)
    agent.chat(who, server).say("Hello?")
    faults = agent.bedrock.faults

    def left_out() -> list[str]:
        return [line for line in server.log.splitlines() if " of notes: " in line]

    harms: list[tuple[Callable[[], object], str]] = [
        (lambda: faults.deny(FIND, 1), "AccessDenied"),
        (lambda: faults.fail(FIND, 500), "Knowledge Bases: "),
        (lambda: faults.cut(FIND), "Knowledge Bases: "),
        (lambda: faults.hang(FIND), "no answer within 1 s"),
    ]
    for harm, why in harms:
        harm()
        before, began = len(left_out()), time.monotonic()
        chat = agent.chat(who, server)
        assert chat.say(QUESTION).text == f"You said: {QUESTION}"
        assert time.monotonic() - began < 5
        wait_for("a line", lambda before=before: len(left_out()) > before)  # type: ignore[misc]
        assert len(left_out()) == before + 1
        assert why in left_out()[-1]
    faults.clear()


def test_a_document_is_found_when_it_is_indexed(agent: Agent, who: str) -> None:
    service = agent.bedrock.service
    service.ingestion_delay = 30
    began = time.monotonic()
    assert agent.chat(who).say(CAT).turn == 1
    agent.idle()
    assert time.monotonic() - began < 20, "the recording does not wait for the index"
    chat = agent.chat(who)
    chat.say(QUESTION)
    assert shown(agent.provider, chat, QUESTION) == []
    service.clock.advance(31)
    again = agent.chat(who)
    again.say(QUESTION)
    assert shown(agent.provider, again, QUESTION) == [CAT]


def test_forget_deletes_the_documents_of_one_actor(agent: Agent, who: str) -> None:
    agent.bedrock.service.deletion_delay = 5
    others = [f"/users/{who}{number}/facts/" for number in range(1100)]
    for namespace in others:
        agent.bedrock.remember(agent.base, namespace, f"Of {namespace}.")
    texts = [f"Fact {number} of {who}." for number in range(25)]
    agent.bedrock.remember(agent.base, f"/users/{who}/facts/", *texts)
    assert sorted(agent.kept(who)) == sorted(texts)
    result = agent.run("forget", "--actor", who, "--json")
    report = json.loads(result.stdout)
    assert (result.returncode, report["records"], report["could_not"]) == (0, 25, []), result
    assert any("for a few more minutes" in note for note in report["notes"])
    assert agent.kept(who) == []
    kept = agent.bedrock.service.texts(agent.base)
    assert {f"Of {namespace}." for namespace in others} <= {*kept}
    assert not any(who in text and f"{who}" in text.split() for text in kept)
    sizes = [
        len(it.given["documentIdentifiers"])
        for it in agent.bedrock.calls.of("DeleteKnowledgeBaseDocuments")
    ]
    assert sum(sizes) == 25
    assert max(sizes) == 10


@pytest.mark.full
def test_check_compares_the_knowledge_base_with_the_file(agent: Agent) -> None:
    def found(**more: str) -> list[str]:
        base = agent.bedrock.add_base(**more)
        given = variables(agent.bedrock, notes=base)
        output = agent.run("check", "--connect", "--json", **given).stdout
        return [it["message"] for it in json.loads(output)["diagnostics"] if "notes" in it["file"]]

    assert found() == []
    assert found(status="CREATING") == ["The knowledge base is CREATING: wait until it is ACTIVE."]
    (message,) = found(type="MANAGED")
    assert message == 'The knowledge base is of type MANAGED: set search to "managed".'
    (message,) = found(type="KENDRA")
    assert message == "The knowledge base is of type KENDRA: memories need type VECTOR or MANAGED."
    (message,) = found(source_type="S3")
    assert message == "The data source is of type S3: use a data source of type CUSTOM."
    given = variables(agent.bedrock, notes="KBDOESNTEX")
    output = agent.run("check", "--connect", "--json", **given).stdout
    assert "AML-E112" in output


@pytest.mark.usual("strands-python", "vercel-typescript")
def test_check_lists_documents_that_were_accepted_and_not_indexed(agent: Agent, who: str) -> None:
    base = agent.bedrock.add_base()
    for number in range(13):
        agent.bedrock.remember(base, f"/users/{who}{number:02}/facts/", "Fact.")
    kept, *refused = agent.bedrock.service.bases[base].documents.values()
    for document in refused:
        document.refused = ("FAILED", "The embedding model is not available")
    refused[0].refused = ("IGNORED", "")
    given = variables(agent.bedrock, notes=base)
    done = agent.run("check", "--connect", "--json", **given)
    found = [it for it in json.loads(done.stdout)["diagnostics"] if it["id"] == "AML-W241"]
    assert len(found) == 11, done
    reasons = [it["message"].partition(" is ")[2] for it in found]
    assert reasons[:2] == [
        "IGNORED: unknown reason.",
        "FAILED: The embedding model is not available.",
    ]
    assert found[-1]["message"] == "2 more documents are not indexed."
    assert kept.refused is None


@pytest.mark.full
def test_a_document_that_fails_after_it_was_accepted_is_in_the_log(agent: Agent, who: str) -> None:
    agent.bedrock.service.refused = ("FAILED", f"Not this text: {CAT}")
    server = agent.fresh()
    try:
        for text in (CAT, "My dog is called Rex."):
            assert agent.chat(who, server).say(text).turn == 1
            agent.idle(server)
        assert server.log.count("1 of 1 documents are not indexed: run `check --connect`") == 1
        assert agent.bedrock.calls.count("GetKnowledgeBaseDocuments") == 1
        assert CAT not in server.log
    finally:
        server.signal()
        server.stop()


@pytest.mark.full
def test_forget_names_documents_below_a_namespace_that_was_renamed(agent: Agent, who: str) -> None:
    agent.bedrock.remember(agent.base, f"/users/{who}2/facts/", "A fact.")
    done = agent.run("forget", "--actor", "facts", "--json")
    assert (done.returncode, json.loads(done.stdout)["could_not"]) == (0, []), "it is no actor"
    old = f"/people/{who}/facts/"
    for namespace in (old, f"/users/{who}/facts/", f"/people/{who}2/facts/"):
        agent.bedrock.remember(agent.base, namespace, "A fact.")
    done = agent.run("forget", "--actor", who, "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["records"]) == (1, 1), done
    (found,) = report["could_not"]
    assert f"records in {old} of collection notes" in found
    assert len(agent.bedrock.service.texts(agent.base, old)) == 1


@pytest.mark.usual("strands-python", "vercel-python", "strands-typescript", "vercel-typescript")
def test_the_tools_describe_the_stores_and_their_purpose(agent: Agent, who: str) -> None:
    chat = agent.chat(who)
    chat.say(QUESTION)
    offered = json.dumps(chat.calls(QUESTION)[0].request)
    line = "- notes: Facts of what people said. They last beyond sessions."
    assert offered.count(line) == 2, offered


def test_facts_are_plain_lines(agent: Agent, who: str) -> None:
    usual = agent.provider.summarize
    ends = ["\r\n", "\r", "\u2028", "\x85", "\x0b", "\n"]
    facts = [f"Fact {number}\x00 is{chr(27)}\ufeffplain." for number in range(6)]
    answer = "".join(f"- {fact}{end}" for fact, end in zip(facts, ends, strict=True))
    agent.provider.summarize = lambda _: [f"{answer}-\n1.\n*\nNONE\n"]
    try:
        agent.chat(who).say(CAT)
        agent.idle()
    finally:
        agent.provider.summarize = usual
    assert agent.kept(who) == [f"Fact {number}  is  plain." for number in range(6)]


@pytest.mark.parametrize(
    ("step", "calls"),
    [
        (["My cat is", End("length")], 1),
        ([End("filter")], 1),
        ([Refuse(400)], 1),
        ([50_000 * "x", "y"], 1),
        (["My cat is", CUT], 3),
    ],
)
def test_the_model_is_paid_a_few_times_for_a_turn(
    agent: Agent, who: str, step: Step, calls: int
) -> None:
    usual, before = agent.provider.summarize, len(agent.provider.summaries())
    agent.provider.summarize = lambda _: step
    add = [Call("add_memory", {"entries": ["She likes tea."]})]
    try:
        assert agent.chat(who).say(CAT, add, ["Noted."]).turn == 1
        agent.idle()
    finally:
        agent.provider.summarize = usual
    assert len(agent.provider.summaries()) == before + calls
    assert agent.kept(who) == ["She likes tea."], "what needs no model is recorded"
    assert "notes: turns not recorded: 1 (the model" in agent.server.log


@pytest.mark.usual("strands-python", "vercel-typescript")
def test_a_call_for_facts_has_at_most_a_hundred_texts(agent: Agent, who: str) -> None:
    gate, usual, before = threading.Event(), agent.provider.summarize, agent.provider.summaries()
    agent.provider.summarize = lambda prompt: [Hold(gate), *usual(prompt)]
    chat = agent.chat(who)
    try:
        for number in range(52):
            assert chat.say(f"Turn {number}.").status == 200
    finally:
        gate.set()
        agent.provider.summarize = usual
    agent.idle()
    calls = agent.provider.summaries()[len(before) :]
    assert [len(call.prompt.splitlines()) - 3 for call in calls] == [2, 100, 2]


@pytest.mark.usual("strands-python", "vercel-typescript")
def test_a_model_that_is_busy_is_asked_again(agent: Agent, who: str) -> None:
    usual, busy = agent.provider.summarize, [Refuse(429, stays=False)] * 5
    agent.provider.summarize = lambda prompt: [busy.pop()] if busy else usual(prompt)
    try:
        assert agent.chat(who).say(CAT).turn == 1
        agent.idle()
    finally:
        agent.provider.summarize = usual
    assert agent.kept(who) == [CAT]


@pytest.mark.usual("vercel-python", "vercel-typescript")
def test_a_namespace_that_is_never_written_is_a_warning(target: Target, tmp_path: Path) -> None:
    home = Home(target, tmp_path)
    home.declare(declared("notes", more='    "/users/{actorId}/old": {top_k: 3}\n'))
    found = json.loads(home.run("check", "--json").stdout)["diagnostics"]
    (warning,) = [it for it in found if it["id"] == "AML-W223"]
    assert "/users/{actorId}/old" in warning["message"]
    assert warning["severity"] == "warning"


@pytest.mark.usual("vercel-python", "vercel-typescript")
def test_the_policy_allows_the_used_actions(agent: Agent) -> None:
    policy = json.loads(agent.run("iam").stdout)
    found = {it["Sid"]: it for it in policy["Statement"]}
    resource = "arn:aws:bedrock:us-east-1:${AWS_ACCOUNT_ID}:knowledge-base/${SECRETS_NOTES}"
    assert found["RecallNotes"] == {
        "Sid": "RecallNotes",
        "Effect": "Allow",
        "Action": ["bedrock:Retrieve"],
        "Resource": [resource],
    }
    assert found["RecordNotes"]["Action"] == [
        "bedrock:IngestKnowledgeBaseDocuments",
        "bedrock:StartIngestionJob",
        "bedrock:GetKnowledgeBaseDocuments",
    ]


@pytest.mark.usual("strands-python", "vercel-typescript")
def test_a_pending_approval_survives_the_end_of_the_process(agent: Agent, who: str) -> None:
    server = agent.fresh(SHUTDOWN_GRACE_SECONDS=60)
    agent.bedrock.faults.fail(INGEST, times=3)
    assert agent.chat(who, server).say(CAT).turn == 1
    server.signal()
    assert server.exit_code(within=60) == 0
    assert agent.kept(who) == [CAT]


@pytest.mark.full
def test_a_trial_needs_no_account(target: Target, tmp_path: Path) -> None:
    home = Home(target, tmp_path)
    chat = ("chat", "--actor", "robin")
    first = home.run(*chat, typed=f"{CAT}\n{QUESTION}\n")
    assert first.returncode == 0, first
    assert ".memory" in first.stdout
    second = home.run(*chat, typed=f"{QUESTION}\n")
    assert f'I remember: "{CAT}"' in second.stdout
    assert f'I remember: "{QUESTION}"' not in second.stdout, "a question is no fact"
    assert home.run("forget", "--actor", "robin").returncode == 0
    assert "robin" not in home.local()


@pytest.mark.usual("strands-python", "vercel-typescript")
def test_erase_project_knows_the_namespaces_of_all_collections_of_a_data_source(
    agent: Agent, target: Target, tmp_path: Path, who: str
) -> None:
    home = Home(target, tmp_path)
    team = declared("team", "project", template="/projects/{projectId}")
    home.declare(declared("notes"), team.replace("secrets/team", "secrets/notes"))
    base = agent.bedrock.add_base()
    for path in (f"/users/{who}/facts/", "/people/", f"/projects/{PROJECT}/", "/projects/gemini/"):
        agent.bedrock.remember(base, path, path)
    command = ("erase-project", "--yes", f"my-agent/{PROJECT}", "--unshared", "notes")
    given = variables(agent.bedrock, notes=base)
    done = home.run(*command, PROJECT_ID=PROJECT, **given)
    assert done.returncode == 0, done
    assert agent.bedrock.service.texts(base) == ["/projects/gemini/"]


@pytest.mark.usual("vercel-python", "vercel-typescript")
def test_a_managed_base_is_searched_as_such(
    agent: Agent, target: Target, tmp_path: Path, who: str
) -> None:
    home = Home(target, tmp_path)
    home.declare(declared("notes", more='  search: "managed"\n'))
    base = agent.bedrock.add_base(type="MANAGED")
    agent.bedrock.remember(base, f"/users/{who}/facts/", CAT)
    given = {**SETTINGS, **variables(agent.bedrock, notes=base)}
    server = Server(target, home.folder, agent.provider.origin, given)
    try:
        chat = Chat(server, agent.provider, actor=who)
        chat.say(QUESTION)
        assert shown(agent.provider, chat, QUESTION) == [CAT]
    finally:
        server.signal()
        server.stop()
