"""A guardrail of Bedrock that intervenes ends its turn, and nothing of the turn stays."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.conformance import targets
from tests.conformance.chat import Chat, assert_done, assert_failed, echoed
from tests.conformance.client import JSON
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.steps import Call, Intervene, Refuse, Step
from tests.conformance.test_logs import lines
from tests.stores.agents import StoreFleet

pytestmark = pytest.mark.slow

# With a store, to compare the bytes of a session; its render has the model as an answer.
VENDOR_TARGETS = [
    replace(target, variant=target.variant.partition("+")[0], store="valkey", answers=(BEDROCK,))
    for BEDROCK in [("model", "bedrock")]
    for target in targets.VENDOR_TARGETS
    if target.name.endswith("-bedrock")
]
ID, VERSION = "gr0abc1def2", "3"
GUARDRAIL = {"GUARDRAIL_ID": ID, "GUARDRAIL_VERSION": VERSION}
REFUSAL = "This cannot be answered."  # the text of the guardrail in place of a reply
FILTER = {"type": "VIOLENCE", "confidence": "HIGH", "filterStrength": "HIGH", "detected": True}
INPUT = {ID: {"contentPolicy": {"filters": [FILTER | {"action": "BLOCKED"}]}}}
TOPIC = {"name": "Weapons", "type": "DENY", "action": "BLOCKED", "detected": True}
OUTPUT = {ID: [{"topicPolicy": {"topics": [TOPIC]}}]}
EMAIL = {"type": "EMAIL", "match": "ada@example.com", "action": "ANONYMIZED", "detected": True}
MASKED = {ID: [{"sensitiveInformationPolicy": {"piiEntities": [EMAIL], "regexes": []}}]}
COUNT = Call("word_count", {"text": "a b"})

# What the model does in its last call.
INTERVENTIONS: dict[str, Step] = {
    "blocks the prompt": [REFUSAL, Intervene({"inputAssessment": INPUT})],
    "blocks the reply before any text": [Intervene({"outputAssessments": OUTPUT})],
    "blocks the reply after some text": [
        "Well, ",
        REFUSAL,
        Intervene({"outputAssessments": OUTPUT}),
    ],
    "masks the reply": ["Write to ", "{EMAIL}.", Intervene({"outputAssessments": MASKED})],
    "says not why": [REFUSAL, Intervene()],
    "blocks a tool call": ["Well, ", COUNT, Intervene({"outputAssessments": OUTPUT})],
}


def is_sample(test: str, parameters: dict[str, Any]) -> bool:
    """The usual run tries `check` without calls in one target of each language."""
    return "check_" not in test or "connect" in test or parameters["target"].name in CHECKED


CHECKED = {"strands-python-bedrock", "vercel-typescript-bedrock"}


@pytest.fixture
def server(fleet: StoreFleet) -> Server:
    return fleet.shared(GUARDRAIL_ID=ID, GUARDRAIL_VERSION=VERSION)


def texts(step: Step) -> list[str]:
    return [part for part in step if isinstance(part, str)]


@pytest.mark.parametrize("before", [[], ["Let me see. ", COUNT]], ids=["first", "later"])
@pytest.mark.parametrize("how", INTERVENTIONS)
def test_an_intervention_leaves_no_trace(
    fleet: StoreFleet, chat: Chat, how: str, before: Step
) -> None:
    step, store = INTERVENTIONS[how], fleet.home(chat.server).store
    chat.say("One.")
    stored = store.read(chat.session)
    steps = [before, step] if before else [step]
    reply = chat.say("Two.", *steps)
    shown = texts(before) + texts(step)
    assert_failed(reply, 502, "guardrail_intervened", chat.session, after=shown)
    assert len(chat.calls("Two.")) == len(steps), "nothing is tried again"
    assert store.read(chat.session) == stored
    assert_done(chat.say("Three."), ["You said: ", "Three."], turn=2, session=chat.session)
    # The provider refuses a request whose roles do not alternate.
    assert chat.recalled() == echoed("One.", "Three.")


def test_the_first_turn_of_a_session_leaves_none_either(fleet: StoreFleet, chat: Chat) -> None:
    step = INTERVENTIONS["blocks the prompt"]
    reply = chat.say("One.", step, headers=JSON)
    assert_failed(reply, 502, "guardrail_intervened", chat.session)
    assert "Retry-After" not in reply.headers
    assert REFUSAL not in reply.body.decode()
    assert fleet.home(chat.server).store.read(chat.session) is None
    assert chat.recalled() == []
    failed = lines(chat, 2)[0]
    assert failed.startswith("WARNING turn=1 outcome=guardrail_intervened ms=N")


def test_every_call_has_the_guardrail(chat: Chat) -> None:
    chat.say("Count.", [COUNT], ["Two."])
    assert len(chat.calls("Count.")) == 2
    for call in chat.calls("Count."):
        config = call.request["guardrailConfig"]
        assert (config["guardrailIdentifier"], config["guardrailVersion"]) == (ID, VERSION)


def test_without_the_settings_no_call_has_one(fleet: StoreFleet, provider: Provider) -> None:
    chat = Chat(fleet.shared(), provider)
    chat.say("Hello.")
    assert "guardrailConfig" not in chat.calls("Hello.")[0].request


def check(fleet: StoreFleet, server: Server, *words: str, **settings: str) -> tuple[int, list[str]]:
    """The exit code of `check`, and the messages of its errors; the store has warnings."""
    variables = fleet.target.provider(fleet.provider) | settings
    done = fleet.home(server).run("check", "--json", *words, **variables)
    assert not done.stderr
    found = json.loads(done.stdout)["diagnostics"]
    errors = [finding["message"] for finding in found if finding["severity"] == "error"]
    return done.returncode, errors


WRONG = {
    "only the id": {"GUARDRAIL_VERSION": ""},
    "only the version": {"GUARDRAIL_ID": " "},
    "no id": {"GUARDRAIL_ID": "My Guardrail"},
    "no version": {"GUARDRAIL_VERSION": "v3"},
    "version 0": {"GUARDRAIL_VERSION": "0"},
}


@pytest.mark.parametrize("how", WRONG)
def test_check_explains_each_failure(fleet: StoreFleet, server: Server, how: str) -> None:
    code, (message,) = check(fleet, server, **(GUARDRAIL | WRONG[how]))
    form = "GUARDRAIL_ID must be an id or ARN, GUARDRAIL_VERSION a number or DRAFT"
    assert (code, message.endswith(form)) == (1, True), message


@pytest.mark.parametrize("id", [ID, f"arn:aws:bedrock:us-east-1:123456789012:guardrail/{ID}"])
@pytest.mark.parametrize("version", ["3", "DRAFT"])
def test_check_and_bedrock_accept_the_same_names(
    fleet: StoreFleet, server: Server, id: str, version: str
) -> None:
    given = {"GUARDRAIL_ID": id, "GUARDRAIL_VERSION": version}
    assert check(fleet, server, **given) == (0, [])


REFUSALS: dict[str, Any] = {
    "does not exist": Refuse(400, "ValidationException"),
    "may not be used": Refuse(403, "AccessDeniedException"),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_check_connect_tries_the_guardrail(
    fleet: StoreFleet, server: Server, provider: Provider, why: str
) -> None:
    provider.script("Hello", [REFUSALS[why]])
    code, (message,) = check(fleet, server, "--connect", **GUARDRAIL)
    assert (code, message.count("\n")) == (1, 0)
    assert message.startswith("Cannot call MODEL=test-model: ")
    assert "cannot answer" in message  # what Bedrock says
    assert "guardrailConfig" in provider.calls_for("Hello")[-1].request
    provider.script("Hello", ["Hello."])
    assert check(fleet, server, "--connect", **GUARDRAIL) == (0, [])


def test_a_guardrail_that_does_not_exist_is_in_the_log(chat: Chat) -> None:
    reply = chat.say("One.", [REFUSALS["does not exist"]], headers=JSON)
    assert_failed(reply, 502, "model_failed", chat.session)
    (failed,) = lines(chat, 1)
    assert "model_failed" in failed
    assert re.search("ValidationException|HTTP 400", failed)
