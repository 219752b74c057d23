"""A second model answers what the first one fails before its first byte, and nothing else."""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.conformance import targets
from tests.conformance.chat import Chat, assert_done, assert_failed, echoed
from tests.conformance.client import JSON
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import (
    CUT,
    DROP,
    ERROR,
    FADE,
    HANG,
    OPEN,
    Call,
    Fail,
    Hold,
    Refuse,
    Step,
    Think,
)
from tests.conformance.targets import TARGETS, Target
from tests.conformance.test_logs import lines
from tests.support.files import png, sent

pytestmark = pytest.mark.slow

FIRST, SECOND = "test-model", "second-model"


def with_fallback(target: Target) -> Target:
    """The target as rendered with a second model."""
    base, _, model = target.variant.partition("+")
    model = model or "bedrock"
    answers = (("model", model),)
    return replace(target, variant=f"{base}+fallback", answers=answers, provider=named(target))


def named(target: Target) -> Callable[[str], dict[str, str]]:
    """The variables of a provider, with the name of the first model."""
    return lambda origin: {**target.provider(origin), "MODEL": FIRST}


VENDOR_TARGETS = [with_fallback(target) for target in [*TARGETS, *targets.VENDOR_TARGETS]]
COUNT = Call("word_count", {"text": "a b"})
ANSWER: Step = ["The second ", "answers."]
THROTTLED = "ThrottlingException"  # as Bedrock names it
TEMPORARY: dict[str, Step] = {
    "408": [Refuse(408)],
    "409": [Refuse(409)],
    "429": [Refuse(429, THROTTLED)],
    "500": [Refuse(500)],
    "503": [Refuse(503, "ServiceUnavailableException")],
    "529": [Refuse(529)],
    "a closed connection": [DROP],
    "an overloaded server, in the stream": [Fail("overloaded")],
    "a rate limit, in the stream": [Fail("limit")],
    "a server error, in the stream": [Fail("server")],
    "a bad gateway, in the stream": [Fail("gateway")],
    "an overloaded server, after its start": ["", Fail("overloaded")],
}
# What a model sends before it is silent.
SILENT: dict[str, Step] = {
    "nothing": [HANG],
    "headers": [OPEN, HANG],
    "a start": ["", HANG],
}
LASTING: dict[str, Step] = {
    "400": [Refuse(400, "ValidationException")],
    "a bad request, in the stream": [Fail("request")],
    "401": [Refuse(401)],
    "403": [Refuse(403, "AccessDeniedException")],
    "404": [Refuse(404, "ResourceNotFoundException")],
    "a cut before any text": [CUT],
    "an end before any text": [FADE],
    "a cut": ["Well, ", CUT],
    "an end": ["Well, ", FADE],
    "an error": ["Well, ", ERROR],
    "a cut in a tool call": ["Well, ", Call("word_count", raw='{"text": "a'), CUT],
}


def is_sample(test: str, parameters: dict[str, Any]) -> bool:
    """Whether a usual run has a test: of other vendors than the first, what their clients say."""
    how = parameters.get("how")
    if any(parameters["target"].name == target.name for target in TARGETS):
        return how not in {"408", "409", "500", "529"}
    failures = {"an overloaded server, in the stream", "a bad request, in the stream"}
    failures |= {"503", "400", "a cut before any text", "a cut", "headers"}
    return how in failures or "guardrail" in test or "opened" in test


@pytest.fixture
def server(fleet: Fleet) -> Server:
    return fleet.shared(MODEL_FALLBACK=SECOND)


def say(chat: Chat, text: str, first: list[Step], *second: Step, **given: Any) -> Any:
    """Send a prompt for which the models have these steps."""
    script(chat, text, first, *second)
    return chat.say(text, **given)


def script(chat: Chat, text: str, first: list[Step], *second: Step) -> None:
    chat.provider.script(f"{FIRST}: {text}{chat.tag}", *first)
    chat.provider.script(f"{SECOND}: {text}{chat.tag}", *second)


def asked(chat: Chat, text: str) -> list[str]:
    """The models that were asked, each retry of a client left out."""
    names = [call.model for call in chat.calls(text)]
    return [name for at, name in enumerate(names) if at == 0 or name != names[at - 1]]


@pytest.mark.parametrize("how", TEMPORARY)
def test_the_second_model_answers(chat: Chat, how: str) -> None:
    chat.say("One.")
    reply = say(chat, "Two.", [TEMPORARY[how]], ANSWER)
    assert_done(reply, ["The second ", "answers."], 2, chat.session, SECOND)
    tries = [call.model for call in chat.calls("Two.")].count(FIRST)
    assert 1 <= tries <= 3
    assert asked(chat, "Two.") == [FIRST, SECOND]
    said = [("user", "Two."), ("assistant", "The second answers.")]
    assert chat.recalled("Three.") == [*echoed("One."), *said]
    assert asked(chat, "Three.") == [FIRST], "the next turn begins with the first model again"
    _, why, second, third = lines(chat, 4)
    assert re.match("WARNING MODEL failed, calling MODEL_FALLBACK: .", why)
    assert how in why or not how.isdigit()
    assert second.startswith("INFO turn=2 outcome=committed")
    assert second.endswith(f" model={SECOND}")
    assert "model=" not in third


@pytest.mark.parametrize("how", LASTING)
def test_other_failures_end_the_turn(chat: Chat, how: str) -> None:
    step = LASTING[how]
    chat.say("One.")
    reply = say(chat, "Two.", [step], ANSWER)
    after = [part for part in step if isinstance(part, str)]
    assert_failed(reply, 502, "model_failed", chat.session, after=after)
    assert asked(chat, "Two.") == [FIRST]
    assert chat.recalled() == echoed("One.")


def test_in_a_later_step_too(chat: Chat) -> None:
    reply = say(chat, "Count.", [["Let me see. ", COUNT], [Refuse(503)]], ["Two."])
    assert_done(reply, ["Let me see. ", "Two."], 1, chat.session, SECOND)
    calls = [
        ("assistant", "Let me see. "),
        ("call", "word_count", {"text": "a b"}),
        ("result", "2"),
    ]
    assert chat.history(chat.calls("Count.")[-1]) == [("user", "Count."), *calls]
    assert asked(chat, "Count.") == [FIRST, SECOND]


def test_after_a_step_of_the_second_model_the_first_is_asked_again(chat: Chat) -> None:
    chat.provider.script(f"{SECOND}: Count.{chat.tag}", [COUNT])
    down = [Refuse(503, stays=False)] * 3  # for each try of the client
    chat.provider.script(f"{FIRST}: Count.{chat.tag}", *([step] for step in down), ["Two."])
    reply = chat.say("Count.", headers=JSON)
    assert (reply.json["reply"], reply.json["model"]) == ("Two.", FIRST)
    assert asked(chat, "Count.") == [FIRST, SECOND, FIRST]
    assert "model=" not in lines(chat, 2)[1]


@pytest.mark.parametrize(("status", "is_busy"), [(429, True), (401, False)])
def test_where_both_fail_the_second_says_why(chat: Chat, status: int, is_busy: bool) -> None:
    chat.say("One.")
    reply = say(chat, "Two.", [[Refuse(503)]], [Refuse(status)], headers=JSON)
    assert_failed(reply, 502, "model_failed", chat.session)
    assert ("Retry-After" in reply.headers) == is_busy
    assert asked(chat, "Two.") == [FIRST, SECOND]
    assert chat.recalled() == echoed("One.")
    _, why, failed, _ = lines(chat, 4)
    assert "503" in why
    assert "outcome=model_failed" in failed
    assert str(status) in failed
    assert "model=" not in failed


BLIND: Step = [Refuse(400, text="This model doesn't support the image content block.")]
NO_IMAGES = "The model does not read images."


def look(chat: Chat, first: Step, second: Step) -> Any:
    """Send a photo to models with these steps; the first is asked once, and with each retry."""
    script(chat, "Look.", [first], second)
    return chat.post({"prompt": f"Look.{chat.tag}", "files": [sent("a.png", "image/png", png())]})


def test_a_file_that_the_first_model_does_not_read_calls_no_second_model(chat: Chat) -> None:
    reply = look(chat, BLIND, ANSWER)
    assert_failed(reply, 415, "unsupported_file", chat.session)
    assert reply.json["error"]["message"].startswith(NO_IMAGES)
    assert asked(chat, "Look.") == [FIRST]
    assert chat.recalled() == []


def test_a_file_that_the_second_model_does_not_read_fails_the_turn(chat: Chat) -> None:
    reply = look(chat, [Refuse(503)], BLIND)
    assert_failed(reply, 415, "unsupported_file", chat.session)
    assert reply.json["error"]["message"].startswith(NO_IMAGES)
    assert asked(chat, "Look.") == [FIRST, SECOND]
    assert chat.recalled() == []


def test_the_second_model_that_breaks_off_fails_the_turn(chat: Chat) -> None:
    reply = say(chat, "One.", [[Refuse(503)]], ["Well, ", CUT])
    assert_failed(reply, 502, "model_failed", chat.session, after=["Well, "])
    assert asked(chat, "One.") == [FIRST, SECOND]
    assert chat.recalled() == []
    assert f" model={SECOND} detail=" in lines(chat, 2)[1]


def test_two_turns_at_once_do_not_mix(
    server: Server, provider: Provider, gate: threading.Event
) -> None:
    down, well = Chat(server, provider), Chat(server, provider)
    script(well, "One.", [["First, ", Hold(gate), "too."]], ANSWER)
    script(down, "One.", [[Refuse(503)]], ["Second, ", Hold(gate), "too."])
    exchanges = [chat.start("One.", headers=JSON) for chat in (well, down)]
    down.call("One.")
    gate.set()
    replies = [exchange.reply().json for exchange in exchanges]
    assert [it["reply"] for it in replies] == ["First, too.", "Second, too."]
    assert [it["model"] for it in replies] == [FIRST, SECOND]
    assert (asked(well, "One."), asked(down, "One.")) == ([FIRST], [FIRST, SECOND])
    assert "model=" not in lines(well, 1)[0]
    assert lines(down, 2)[1].endswith(f"model={SECOND}")


def test_a_first_model_that_is_slow_answers(chat: Chat, gate: threading.Event) -> None:
    script(chat, "One.", [[Hold(gate), "At last."]], ANSWER)
    exchange = chat.start("One.", headers=JSON)
    chat.call("One.")
    chat.server.settle()
    gate.set()
    assert exchange.reply().json["reply"] == "At last."
    assert asked(chat, "One.") == [FIRST]


def test_a_turn_whose_time_is_over_asks_no_second_model(fleet: Fleet, provider: Provider) -> None:
    chat = Chat(fleet.shared(MODEL_FALLBACK=SECOND, TURN_TIMEOUT_SECONDS=1), provider)
    reply = say(chat, "One.", [[HANG]], ANSWER, headers=JSON)
    assert_failed(reply, 504, "turn_timeout", chat.session)
    assert chat.recalled() == []
    assert asked(chat, "One.") == [FIRST]


@pytest.fixture
def hasty(fleet: Fleet, provider: Provider) -> Chat:
    """A chat whose first model has a second for its first content."""
    return Chat(fleet.shared(MODEL_FALLBACK=SECOND, FALLBACK_SECONDS=1), provider)


@pytest.mark.full
@pytest.mark.parametrize("how", SILENT)
def test_a_model_that_is_silent_is_not_waited_for(hasty: Chat, how: str) -> None:
    reply = say(hasty, "One.", [SILENT[how]], ANSWER, headers=JSON)
    assert reply.json["reply"] == "The second answers."
    assert asked(hasty, "One.") == [FIRST, SECOND]
    assert "TimeoutError" in hasty.server.log
    assert_closed(hasty, "One.")
    assert hasty.say("Two.").turn == 2


@pytest.mark.parametrize(
    "begin",
    [
        ["Well, "],
        [Think("I wonder.")],
        [Call("word_count", {"text": "a b"})],
    ],
    ids=["text", "reasoning", "a tool call"],
)
def test_after_its_first_content_a_model_has_the_time_of_the_turn(hasty: Chat, begin: Step) -> None:
    script(hasty, "One.", [[*begin, Hold(threading.Event())]], ANSWER)
    exchange = hasty.start("One.", headers=JSON)
    hasty.call("One.")
    time.sleep(2)  # FALLBACK_SECONDS is real time
    assert asked(hasty, "One.") == [FIRST]
    exchange.leave()
    assert_closed(hasty, "One.")


@pytest.mark.full
@pytest.mark.parametrize("how", SILENT)
def test_no_connection_stays_opened_after_its_turn(
    fleet: Fleet, provider: Provider, how: str
) -> None:
    server = fleet.shared(MODEL_FALLBACK=SECOND, FALLBACK_SECONDS=1, TURN_TIMEOUT_SECONDS=2)
    chat = Chat(server, provider)
    reply = say(chat, "One.", [SILENT[how]], SILENT[how], headers=JSON)
    assert_failed(reply, 504, "turn_timeout", chat.session)
    assert asked(chat, "One.") == [FIRST, SECOND]
    assert_closed(chat, "One.")


def assert_closed(chat: Chat, text: str) -> None:
    """Five seconds after a turn no call of it is open at the provider."""
    deadline = time.monotonic() + 5
    while any(call.outcome == "running" for call in chat.calls(text)):
        assert time.monotonic() < deadline, chat.calls(text)
        time.sleep(0.05)


def test_a_client_that_leaves_asks_no_second_model(chat: Chat) -> None:
    script(chat, "One.", [[HANG]], ANSWER)
    exchange = chat.start("One.")
    chat.call("One.")
    exchange.leave()
    chat.gone("One.")
    assert chat.recalled() == []
    assert asked(chat, "One.") == [FIRST]


def test_without_a_second_model_nothing_falls_back(fleet: Fleet, provider: Provider) -> None:
    chat = Chat(fleet.shared(), provider)
    reply = say(chat, "One.", [[Refuse(503)]], ANSWER, headers=JSON)
    assert_failed(reply, 502, "model_failed", chat.session)
    assert asked(chat, "One.") == [FIRST]
    assert chat.say("Two.").turn == 1


def test_the_start_names_both_models(server: Server) -> None:
    assert server.address
    assert f"Fallback: {SECOND}, when {FIRST} fails" in server.log


def test_a_guardrail_is_also_that_of_the_second_model(fleet: Fleet, provider: Provider) -> None:
    guardrail = {"GUARDRAIL_ID": "gr0abc1def2", "GUARDRAIL_VERSION": "3"}
    chat = Chat(fleet.shared(False, MODEL_FALLBACK=SECOND, **guardrail), provider)
    say(chat, "One.", [[Refuse(503)]], ANSWER)
    assert asked(chat, "One.") == [FIRST, SECOND]
    has_guardrail = ["guardrailConfig" in call.request for call in chat.calls("One.")]
    assert set(has_guardrail) == {"-bedrock" in fleet.target.name}
