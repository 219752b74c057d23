"""A request that is too long for the model becomes shorter inside its turn."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance import targets
from tests.conformance.chat import Chat, assert_failed, echoed
from tests.conformance.client import JSON, Reply
from tests.conformance.conftest import OpenFleet
from tests.conformance.provider import Provider, facts_of
from tests.conformance.server import Fleet
from tests.conformance.steps import HANG, Call, Refuse, Step
from tests.conformance.targets import TARGETS, Target, compacting
from tests.conformance.test_fallback import with_fallback
from tests.conformance.waiting import ASKED, answer, delete, ids, order, runs

pytestmark = pytest.mark.about("turns")

VENDOR_TARGETS = [*TARGETS, *targets.VENDOR_TARGETS]
IN_STREAMS = {"OpenAI", "Anthropic", "Bedrock"}
WINDOW = 30_000  # characters that the model can read
LONG = "~" * 850  # with its echo a turn of 1.7 kB


def is_sample(test: str, parameters: dict[str, Any]) -> bool:
    """A usual run has the texts of vendors with their clients, and the rest with the first.

    Of the texts in a stream it has a few: a text is read alike in both forms.
    """
    if parameters.get("is_event") and parameters["vendor"] not in IN_STREAMS:
        return False
    is_first = any(parameters["target"].name == target.name for target in TARGETS)
    return is_first or "says_so" in test or "a_rate_limit" in test


@pytest.fixture(autouse=True)
def usual_models(provider: Provider) -> Iterator[None]:
    usual = provider.too_long
    provider.window = WINDOW
    yield
    provider.window, provider.too_long, provider.summarize = None, usual, facts_of


def warnings_of(chat: Chat) -> list[str]:
    """The warnings of a server that only this chat uses."""
    lines = [line for line in chat.server.log.splitlines() if " WARNING " in line]
    return [line.partition(" WARNING ")[2] for line in lines]


def assert_shortened(chat: Chat, messages: str = r"\d+", results: str = "") -> None:
    """The only warning of this chat's server is about one turn."""
    what = "model: the request was too long"
    what += f"; the history was shortened to {messages} messages" if messages else ""
    what += f"; {results} tool results were cut" if results else ""
    (line,) = warnings_of(chat)
    assert re.fullmatch(what, line), line


def assert_too_long(reply: Reply, chat: Chat) -> None:
    assert_failed(reply, 413, "prompt_too_long", chat.session)
    said = "The prompt is too long for the model. Send a shorter one."
    assert reply.json["error"]["message"] == said


def fill(chat: Chat, count: int = 16) -> None:
    """Say almost as much as the model can read."""
    for number in range(1, count + 1):
        assert chat.say(f"{number}. {LONG}").turn == number


def refused(chat: Chat, text: str) -> list[int]:
    """The sizes of the requests for a prompt that were too long."""
    sizes = [call.size for call in chat.calls(text)]
    return [size for size in sizes if size > WINDOW]


def test_each_of_forty_turns_is_answered(fleet: Fleet, provider: Provider) -> None:
    chat = Chat(fleet.fresh(), provider)
    replies = [chat.say(f"{number}. {LONG}") for number in range(1, 41)]
    assert [reply.turn for reply in replies] == [*range(1, 41)]
    sizes = [len(refused(chat, f"{number}. {LONG}")) for number in range(1, 41)]
    assert max(sizes) == 1, "half of the history is enough"
    assert 2 <= sum(sizes) <= 4, "the next turn does not pay again"
    assert len(warnings_of(chat)) == sum(sizes)


def test_the_turns_that_are_left_can_be_replaced_and_copied(
    fleet: Fleet, provider: Provider
) -> None:
    chat = Chat(fleet.fresh(), provider)
    fill(chat)
    assert chat.say(f"17. {LONG * 3}").turn == 17
    assert_shortened(chat)
    provider.window = None
    history = chat.recalled("18.")
    first = int(str(history[0][1]).partition(".")[0])
    assert 8 <= first <= 11
    copy = f"{chat.session}-fork"
    assert chat.post({"fork": copy, "at_turn": 16}, JSON).status == 200
    assert chat.elsewhere(session=copy).recalled() == history[:-2]
    assert_failed(chat.replace(first - 1, "Gone."), 400, "invalid_request", chat.session)
    assert chat.replace(first + 1, "Again.").turn == first + 1
    assert chat.recalled("What is left?") == [*history[:2], *echoed("Again.")]


def test_a_turn_that_fails_leaves_the_history_whole(fleet: Fleet, provider: Provider) -> None:
    chat = Chat(fleet.fresh(TURN_TIMEOUT_SECONDS=2), provider)
    fill(chat)
    reply = chat.say(f"17. {LONG * 3}", [HANG], headers=JSON)
    assert_failed(reply, 504, "turn_timeout", chat.session)
    assert refused(chat, f"17. {LONG * 3}")
    provider.window = None
    assert len(chat.recalled()) == 32


def test_a_prompt_that_is_too_long_alone_says_so(fleet: Fleet, provider: Provider) -> None:
    chat = Chat(fleet.fresh(), provider)
    assert_too_long(chat.say("~" * 31_000), chat)
    assert len(chat.calls("~" * 31_000)) == 1
    assert chat.say("One.").turn == 1
    assert_too_long(chat.say("~" * 31_000), chat)
    assert chat.recalled() == echoed("One.")


# As they stand in reports of users: status, code, text.
TEXTS: dict[str, tuple[int, str | None, str]] = {
    "OpenAI": (
        400,
        "context_length_exceeded",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in"
        " 192041 tokens. Please reduce the length of the messages.",
    ),
    "OpenAI, newer": (
        400,
        "context_length_exceeded",
        "Your input exceeds the context window of this model. Please adjust your input.",
    ),
    "Azure": (
        400,
        None,
        "This model's maximum context length is 8192 tokens. However, you requested 9200 tokens"
        " (8200 in the messages, 1000 in the completion).",
    ),
    "Anthropic": (400, None, "prompt is too long: 208310 tokens > 200000 maximum"),
    "Anthropic with max_tokens": (
        400,
        None,
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease"
        " input length or `max_tokens` and try again",
    ),
    "Anthropic, in bytes": (413, "request_too_large", "Request exceeds the maximum size"),
    "Bedrock": (400, "ValidationException", "Input is too long for requested model."),
    "Bedrock's Titan": (
        400,
        "ValidationException",
        "Too many input tokens. Max input tokens: 8192, request input token count: 9000",
    ),
    "Bedrock's Claude": (
        400,
        "ValidationException",
        "The model returned the following errors: prompt is too long: 200049 tokens > 200000"
        " maximum",
    ),
    "Gemini": (
        400,
        None,
        "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
    ),
    "vLLM": (
        400,
        None,
        "The decoder prompt (length 21535) is longer than the maximum model length of 16384.",
    ),
    "llama.cpp": (
        400,
        "exceed_context_size_error",
        "the request exceeds the available context size. try increasing the context size",
    ),
    "Groq": (
        400,
        "context_length_exceeded",
        "Please reduce the length of the messages or completion.",
    ),
    "Mistral": (
        400,
        "3051",
        "Prompt contains 40011 tokens and 0 draft tokens, too large for model with 32768 maximum"
        " context length",
    ),
    "xAI": (
        400,
        None,
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    ),
}


def speaks_of(target: Target, vendor: str) -> bool:
    """Whether the target speaks the protocol of the vendor; only two have one of their own."""
    own = next((name for name in ("anthropic", "bedrock") if name in target.name), "")
    return own in vendor.lower()


@pytest.mark.rows(where=lambda row: speaks_of(row["target"], row["vendor"]))
@pytest.mark.parametrize("vendor", TEXTS)
@pytest.mark.parametrize("is_event", [False, True], ids=["", "in a stream"])
def test_a_vendor_that_reports_the_limit(
    target: Target, chat: Chat, vendor: str, is_event: bool
) -> None:
    status, code, text = TEXTS[vendor]
    if is_event:
        status = 200
        code = None if "bedrock" in target.name else code  # the name of the event says it
    chat.provider.too_long = [Refuse(status, code, text=text)]
    chat.provider.window = 200
    chat.say("One.")
    chat.say("Two.")
    long = "~" * 150
    assert chat.say(long).turn == 3
    assert chat.history(chat.calls(long)[-1]) == [*echoed("Two."), ("user", long)]


# These have other reasons, or are limits of tokens in a minute.
OTHERS: dict[str, tuple[int, str | None, str]] = {
    "Groq": (
        413,
        "rate_limit_exceeded",
        "Request too large for model `a` in organization `b` on tokens per minute (TPM): Limit"
        " 6000, Requested 8000, please reduce your message size and try again.",
    ),
    "OpenAI": (429, "rate_limit_exceeded", "Rate limit reached for a on tokens per min (TPM)"),
    "Bedrock": (429, "ThrottlingException", "Too many tokens, please wait before trying again."),
    "Gemini": (
        400,
        None,
        "The input token count exceeds the maximum number of tokens allowed per minute.",
    ),
    "max_tokens": (400, None, "max_tokens is too large: 100000. It must be at most 16384."),
}


@pytest.mark.parametrize("vendor", OTHERS)
def test_a_rate_limit_shortens_nothing(chat: Chat, vendor: str) -> None:
    status, code, text = OTHERS[vendor]
    chat.say("One.")
    reply = chat.say("Two.", [Refuse(status, code, text=text)])
    assert_failed(reply, 502, "model_failed", chat.session)
    assert all(len(call.history) == 3 for call in chat.calls("Two."))
    assert chat.recalled() == echoed("One.")


def test_an_error_after_content_ends_the_turn(chat: Chat) -> None:
    late: Step = ["Well, ", Refuse(200, "context_length_exceeded", text="prompt is too long")]
    chat.say("One.")
    assert_failed(chat.say("Two.", late), 502, "model_failed", chat.session, after=["Well, "])
    assert len(chat.calls("Two.")) == 1
    assert chat.recalled() == echoed("One.")


def test_a_result_that_is_too_long_is_cut(own_agents: Fleet, provider: Provider) -> None:
    chat = Chat(own_agents.fresh(), provider)
    chat.say("One.")
    reply = chat.say("Report.", [Call("report", {"size": 100_000})], ["Read."])
    assert (reply.turn, reply.chunks) == (2, ["Read."])
    assert_shortened(chat, "0", "1")
    result = chat.history(chat.calls("Report.")[-1])[-1][1]
    mark = "… [cut: the result was 100000 characters long]"
    assert re.fullmatch(rf"~+{re.escape(mark)}", result)
    assert 25_000 <= result.count("~") < 25_100
    assert chat.recalled() == [
        ("user", "Report."),
        ("call", "report", {"size": 100_000}),
        ("result", result),
        ("assistant", "Read."),
    ]


def test_a_result_of_emoji_is_cut(own_agents: Fleet, provider: Provider) -> None:
    chat = Chat(own_agents.fresh(), provider)
    call = Call("report", {"size": 60_000, "character": "\U0001f600"})
    assert chat.say("Report.", [call], ["Read."]).turn == 1
    assert_shortened(chat, "", "1")
    result = chat.history(chat.calls("Report.")[-1])[-1][1]
    mark = "… [cut: the result was 60000 characters long]"
    assert re.fullmatch(rf"\U0001f600+{re.escape(mark)}", result)
    assert 14_000 < result.count("\U0001f600") < WINDOW


def test_many_results_are_cut_the_largest_first(own_agents: Fleet, provider: Provider) -> None:
    chat = Chat(own_agents.fresh(), provider)
    sizes = [400, 20_000, 40_000]
    reply = chat.say("Report.", [Call("report", {"size": size}) for size in sizes], ["Read."])
    assert reply.turn == 1
    results = [
        entry[1] for entry in chat.history(chat.calls("Report.")[-1]) if entry[0] == "result"
    ]
    assert [result.count("~") for result in results] == [400, 10_000, 10_000]
    assert_shortened(chat, "", "2")


def test_results_that_stay_too_long_are_the_reason(own_agents: Fleet, provider: Provider) -> None:
    provider.window = 500
    chat = Chat(own_agents.fresh(), provider)
    calls = [Call("report", {"size": 100_000}) for _ in range(3)]
    reply = chat.say("Report.", calls, ["Read."], headers=JSON)
    assert_failed(reply, 502, "model_failed", chat.session)
    assert len(chat.calls("Report.")) == 8, "one with the calls, and seven with their results"
    said = "The tool results are too long for the model. Ask for less at a time."
    assert reply.json["error"]["message"] == said
    assert warnings_of(chat)[0].endswith("too long; 3 tool results were cut")


def test_a_short_prompt_is_not_the_reason(fleet: Fleet, provider: Provider) -> None:
    provider.window = 1
    chat = Chat(fleet.fresh(), provider)
    reply = chat.say("Hi.", headers=JSON)
    assert_failed(reply, 502, "model_failed", chat.session)
    said = "The system prompt and the tools are too long for the model. Shorten them."
    assert reply.json["error"]["message"] == said
    (line,) = warnings_of(chat)
    outcome = f"session {chat.session}: turn=1 outcome=model_failed"
    assert re.fullmatch(rf"{re.escape(outcome)} ms=\d+ detail=.+HTTP 400\)", line), line


@pytest.mark.rows(where=lambda row: "gateway" in row["target"].name)
@pytest.mark.parametrize("status", [400, 500, 200])
def test_a_refusal_that_the_gateway_wraps(chat: Chat, status: int) -> None:
    text = "Provider returned error: prompt is too long: 208310 tokens > 200000 maximum"
    chat.provider.too_long = [Refuse(status, "internal_server_error", text=text)]
    chat.provider.window = None
    chat.say(f"One. {'~' * 100}")
    chat.provider.window = 200
    prompt = f"Two. {'~' * 100}"
    assert chat.say(prompt).turn == 2
    assert len(chat.calls(prompt)) == 2, "a refusal for its length was sent again"


# Of the others each call has the tries of the vendor's client.
@pytest.mark.rows(where=lambda row: "vercel-typescript" in row["target"].name)
def test_a_try_after_a_shorter_prompt_waits_as_long_as_the_provider_asks(chat: Chat) -> None:
    fill(chat)
    text = f"17. {LONG * 3}"
    assert chat.say(text, [Refuse(503, stays=False, after_ms=1_500)], ["Yes."]).turn == 17
    _, down, answered = chat.calls(text)
    assert answered.began - down.began > 1.4


@pytest.mark.rows(where=lambda row: row["target"] in TARGETS)
def test_a_turn_that_goes_on_after_an_approval(approvals: Fleet, provider: Provider) -> None:
    chat = Chat(approvals.fresh(), provider)
    fill(chat)
    provider.window = 60_000
    waiting = ids(chat.say(ASKED, [delete(chat)], ["Deleted."], headers=JSON))
    provider.window = 20_000
    assert answer(chat, waiting).json["turn"] == 17
    assert runs(chat) == 1
    assert_shortened(chat)
    history = chat.history(chat.calls(ASKED)[-1])
    assert history[-2:] == [
        ("call", "delete_order", {"order_id": order(chat)}),
        ("result", f"deleted {order(chat)}"),
    ]
    assert len(history) < 20
    assert chat.recalled() == [*history, ("assistant", "Deleted.")]


@pytest.mark.rows(where=lambda row: row["target"] in TARGETS)
def test_a_turn_that_waits_leaves_the_history_whole(approvals: Fleet, provider: Provider) -> None:
    chat = Chat(approvals.fresh(), provider)
    fill(chat)
    provider.window = 20_000
    ids(chat.say(ASKED, [delete(chat)], headers=JSON))
    provider.window = None
    assert len(chat.recalled()) == 32, "the turn that waited was dropped"


@pytest.mark.slow
@pytest.mark.parametrize("is_down", [False, True], ids=["", "down"])
@pytest.mark.rows(where=lambda row: "gateway" not in row["target"].name)
def test_with_a_fallback_model(
    target: Target, open_fleet: OpenFleet, provider: Provider, is_down: bool
) -> None:
    with open_fleet(with_fallback(target)) as fleet:
        chat = Chat(fleet.fresh(MODEL_FALLBACK="second-model"), provider)
        fill(chat)
        if is_down:
            provider.script(f"test-model: 17. {LONG * 3}{chat.tag}", [Refuse(503)])
        assert chat.say(f"17. {LONG * 3}").turn == 17
        answered = "second-model" if is_down else "test-model"
        assert chat.calls(f"17. {LONG * 3}")[-1].model == answered


@pytest.mark.slow
@pytest.mark.rows(where=lambda row: row["target"] in TARGETS)
def test_with_compaction_the_messages_that_go_are_summarized(
    target: Target, open_fleet: OpenFleet, provider: Provider
) -> None:
    with open_fleet(compacting(target)) as fleet:
        chat = Chat(fleet.fresh(), provider)
        assert chat.say("One fact-1.").turn == 1
        for number in range(2, 41):
            assert chat.say(f"{number}. {LONG}").turn == number
        history = chat.recalled()
        assert "fact-1" in history[0][1]
        assert history[0][1].startswith('<summary of="turns 1 to ')


def test_a_history_of_much_text_is_cut_before_a_model_refuses_it(
    fleet: Fleet, provider: Provider
) -> None:
    chat = Chat(fleet.fresh(HISTORY_CHARS=10_000), provider)
    fill(chat, 5)
    assert len(chat.recalled(f"6. {LONG}")) == 10
    history = chat.recalled(f"7. {LONG}")
    assert [str(text)[:2] for role, text in history if role == "user"] == ["5.", "6."]
    assert warnings_of(chat) == []
