"""A request that is too long for the model becomes shorter inside its turn."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance import targets
from tests.conformance.chat import Chat, assert_failed, echoed
from tests.conformance.client import JSON
from tests.conformance.conftest import OpenFleet
from tests.conformance.provider import ModelCall, Provider
from tests.conformance.server import Fleet
from tests.conformance.steps import Call, Refuse, Step
from tests.conformance.targets import TARGETS, Target, compacting
from tests.conformance.waiting import answer, delete, ids, runs
from tests.conformance.wires import Entry

VENDOR_TARGETS = [*TARGETS, *targets.VENDOR_TARGETS]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("limited")]

LIMIT = 30_000  # characters that the model takes
OPENAI = (
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 "
    "tokens. Please reduce the length of the messages."
)
REFUSAL = Refuse(400, "context_length_exceeded", text=OPENAI)
ANTHROPIC = "input length and `max_tokens` exceed context limit: 196000 + 8192 > 200000"
LLAMA = "the request exceeds the available context size. try increasing the context size"
XAI = "This model's maximum prompt length is 131072 but the request contains 537812 tokens."
REFUSALS = {
    "OpenAI": REFUSAL,
    "OpenAI, with a code alone": Refuse(400, "context_length_exceeded", text="Too much."),
    "Azure": Refuse(400, text="Input tokens exceed the configured limit of 272000 tokens."),
    "Groq": Refuse(400, text="Please reduce the length of the messages or completion."),
    "Mistral": Refuse(
        400,
        text="Prompt contains 36000 tokens and 0 draft tokens, too large for model with 32768 "
        "maximum context length",
    ),
    "Anthropic": Refuse(400, "invalid_request_error", text="prompt is too long: 2001 > 2000"),
    "Anthropic, with its answer": Refuse(400, "invalid_request_error", text=ANTHROPIC),
    "Anthropic's 413": Refuse(413, "request_too_large", text="Request exceeds the maximum size"),
    "Bedrock": Refuse(400, "ValidationException", text="Input is too long for requested model."),
    "Bedrock's Nova": Refuse(
        400,
        "ValidationException",
        text="Too many input tokens. Max input tokens: 300000, request input token count: 300001",
    ),
    "Gemini": Refuse(
        400,
        text="The input token count (1200293) exceeds the maximum number of tokens allowed "
        "(1048576).",
    ),
    "vLLM": Refuse(
        400,
        text="The decoder prompt (length 2136) is longer than the maximum model length of 2048.",
    ),
    "llama.cpp": Refuse(400, "exceed_context_size_error", text=LLAMA),
    "xAI": Refuse(400, text=XAI),
    "a stream of the status 200": Refuse(200, text=OPENAI),
}
OTHERS = {
    "tokens per minute": Refuse(
        413,
        "rate_limit_exceeded",
        text="Request too large for model on tokens per minute (TPM): Limit 6000, Requested 14810, "
        "please reduce your message size and try again.",
    ),
    "a limit": Refuse(429, "ThrottlingException", text="Too many tokens, please wait."),
    "an invalid limit": Refuse(
        400,
        "ValidationException",
        text="The maximum tokens you requested exceeds the model limit of 2048.",
    ),
    "no access": Refuse(403, "AccessDeniedException", text="maximum context length"),
}


def is_sample(test: str, parameters: dict[str, Any]) -> bool:
    """A usual run tries with other vendors than the first what their clients make of a refusal."""
    if any(parameters["target"].name == target.name for target in TARGETS):
        return True
    refusal = parameters.get("refusal")
    return "vendor" in test and refusal in {
        "OpenAI",
        "Anthropic",
        "Bedrock",
        "a stream of the status 200",
    }


def size(history: list[Entry]) -> int:
    return sum(len(json.dumps(part)) for entry in history for part in entry[1:])


@pytest.fixture
def limited(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Make the provider refuse requests of more than LIMIT characters."""
    begin = provider.begin

    def limit(refusal: Refuse = REFUSAL, most: int = LIMIT) -> None:
        def refusing(history: list[Entry], request: dict[str, Any]) -> tuple[ModelCall, Step]:
            if size(history) <= most:
                return begin(history, request)
            call = ModelCall(history, request)
            provider.calls.append(call)
            return call, [refusal]

        monkeypatch.setattr(provider, "begin", refusing)

    limit()
    yield limit
    monkeypatch.undo()


Limit = Callable[..., None]


def prompt(number: int) -> str:
    return f"{number}. ".ljust(850, "x")


def warnings(chat: Chat) -> list[str]:
    found = re.findall(r" WARNING (model: .*)", chat.server.log)
    return [re.sub(r"\d+", "N", line) for line in found]


WARNING = "model: the request was too long; the history was shortened to N messages"


def test_forty_turns_are_all_answered(fleet: Fleet, provider: Provider) -> None:
    chat = Chat(fleet.fresh(HISTORY_MESSAGES=1000), provider)
    for number in range(1, 41):
        assert chat.say(prompt(number)).turn == number
    asked = len(chat.provider.calls_for(*(prompt(number) + chat.tag for number in range(1, 41))))
    assert asked <= 46, "the session is shorter after a turn: the next one does not pay again"
    history = chat.recalled("Hi.")
    assert history == echoed(*(prompt(number) for number in range(41 - len(history) // 2, 41)))
    assert len(warnings(chat)) == asked - 40
    assert set(warnings(chat)) == {WARNING}
    reply = chat.say(f"{'y' * LIMIT}", headers=JSON)
    assert_failed(reply, 413, "prompt_too_long", chat.session)
    message = "The prompt is too long for the model. Send a shorter one."
    assert reply.json["error"]["message"] == message
    assert len(chat.calls("y" * LIMIT)) <= 7
    assert chat.recalled("Again.")[:-2] == history, "the session is unchanged"


@pytest.mark.parametrize("refusal", REFUSALS)
def test_what_a_vendor_says(chat: Chat, limited: Limit, refusal: str) -> None:
    for number in range(4):
        chat.say(prompt(number))
    limited(REFUSALS[refusal], 5000)
    assert chat.recalled("Hi.") == echoed(prompt(2), prompt(3))
    assert len(chat.calls("Hi.")) == 2
    limited(REFUSALS[refusal], 100)
    assert_failed(chat.say(prompt(5)), 413, "prompt_too_long", chat.session)
    limited()
    assert chat.recalled("Still?") == echoed(prompt(2), prompt(3), "Hi.")


@pytest.mark.parametrize("refusal", OTHERS)
def test_other_failures_shorten_nothing(chat: Chat, refusal: str) -> None:
    chat.say("One.")
    reply = chat.say("Two.", [OTHERS[refusal]])
    assert_failed(reply, 502, "model_failed", chat.session)
    assert {len(call.history) for call in chat.calls("Two.")} == {3}


def test_a_refusal_after_content_ends_the_turn(chat: Chat) -> None:
    chat.say("One.")
    reply = chat.say("Two.", ["Well, ", Refuse(200, text=OPENAI)])
    assert_failed(reply, 502, "model_failed", chat.session, after=["Well, "])
    assert len(chat.calls("Two.")) == 1


LONG = "z" * 100_000
CUT = re.compile(r"(z+)… \[cut: the result was 100000 characters long\]")


@pytest.fixture(scope="module")
def tools(target: Target, open_fleet: OpenFleet) -> Iterator[Fleet]:
    with open_fleet(targets.with_own_agent(target)) as fleet:
        yield fleet


def test_a_result_that_is_too_long_is_cut(tools: Fleet, provider: Provider) -> None:
    chat = Chat(tools.shared(), provider)
    for number in range(8):
        chat.say(prompt(number))
    provider.script(f"Much of {chat.session}", [LONG])
    read = Call("summarize", {"text": f"Much of {chat.session}"})
    reply = chat.say("Read.", ["Let me see. ", read], ["Done."], headers=JSON)
    assert reply.json["reply"] == "Let me see. Done."
    *before, result, last = chat.recalled("And?")
    assert CUT.fullmatch(result[1])
    assert (len(before), last) == (3, ("assistant", "Done.")), "only this turn"
    assert reply.json["turn"] == 9


def test_a_turn_that_goes_on_after_an_approval(
    target: Target, open_fleet: OpenFleet, provider: Provider, limited: Limit
) -> None:
    if target not in TARGETS:
        pytest.skip("rendered for one vendor")
    with open_fleet(targets.with_own_agent(target, approval=True)) as fleet:
        chat = Chat(fleet.shared(), provider)
        for number in range(4):
            chat.say(prompt(number))
        waiting = ids(chat.say("Delete.", [delete(chat)], ["Deleted."], headers=JSON))
        limited(most=5000)
        reply = answer(chat, waiting)
        assert (reply.json["turn"], reply.json["reply"]) == (5, "Deleted.")
        assert runs(chat) == 1
        history = chat.recalled("Hi.")
        assert history[:-4] == echoed(prompt(2), prompt(3))[: len(history) - 4]
        assert history[-1] == ("assistant", "Deleted.")


def test_with_a_fallback_model(
    target: Target, open_fleet: OpenFleet, provider: Provider, limited: Limit
) -> None:
    if target not in TARGETS:
        pytest.skip("rendered for one vendor")
    from tests.conformance.test_fallback import SECOND, with_fallback

    with open_fleet(with_fallback(target)) as fleet:
        chat = Chat(fleet.fresh(MODEL_FALLBACK=SECOND), provider)
        for number in range(4):
            chat.say(prompt(number))
        limited(most=5000)
        chat.provider.script(f"test-model: Hi.{chat.tag}", [Refuse(503)])
        reply = chat.say("Hi.", headers=JSON)
        assert reply.json["turn"] == 5
        last = chat.calls("Hi.")[-1]
        assert last.model == SECOND
        assert chat.history(last) == [*echoed(prompt(2), prompt(3)), ("user", "Hi.")]


def test_what_is_removed_is_summarized(
    target: Target, open_fleet: OpenFleet, provider: Provider, limited: Limit
) -> None:
    if target not in TARGETS:
        pytest.skip("rendered for one vendor")
    with open_fleet(compacting(target)) as fleet:
        chat = Chat(fleet.shared(), provider)
        for number in range(4):
            chat.say(f"fact-{number} {prompt(number)}")
        limited(most=5500)
        history = chat.recalled("Hi.")
        assert "The facts: fact-0 fact-0 fact-1 fact-1." in history[0][1]
        assert history[2:] == echoed(*(f"fact-{number} {prompt(number)}" for number in (2, 3)))
        limited()
        assert chat.recalled("Again.")[:-2] == history


def test_turns_are_replaced_and_copied_after_it(chat: Chat, limited: Limit) -> None:
    for number in range(4):
        chat.say(prompt(number))
    limited(most=5000)
    assert chat.say("Hi.").turn == 5
    limited()
    assert_failed(chat.replace(2, "Gone."), 400, "invalid_request", chat.session)
    fork = {"fork": f"{chat.session}-fork", "at_turn": 3}
    assert chat.post(fork, JSON).status == 200
    copy = chat.elsewhere(session=f"{chat.session}-fork")
    assert copy.recalled() == echoed(prompt(2))
    assert chat.replace(4, "Four, again.").turn == 4
    assert chat.recalled() == echoed(prompt(2), "Four, again.")


def test_a_history_of_many_characters_is_cut_to_half(fleet: Fleet, provider: Provider) -> None:
    chat = Chat(fleet.fresh(HISTORY_CHARS=10_000), provider)
    for number in range(6):
        chat.say(prompt(number))
    assert chat.recalled("Hi.") == echoed(*(prompt(number) for number in (4, 5)))
