"""Providers cache the beginning of requests: where its end is marked, and what that saves."""

import json
import re
import time
from typing import Any

import pytest

from tests.conformance import targets
from tests.conformance.chat import Chat
from tests.conformance.prompt_cache import PromptCache, Usage
from tests.conformance.provider import PATIENCE, ModelCall, Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import Call
from tests.conformance.targets import Target
from tests.support import files

pytestmark = pytest.mark.about("turns")
VENDOR_TARGETS = [*targets.TARGETS, *targets.VENDOR_TARGETS]
TURNS, KEPT = 100, 40
LONG = "Lorem ipsum dolor sit amet, consectetur adipisici elit. " * 40


def is_sample(test: str, parameters: dict[str, Any]) -> bool:
    """The usual run measures a long session once with each kind of cache."""
    name = str(getattr(parameters.get("target"), "name", ""))
    if "saves" in test:
        return name in {"strands-python", "vercel-typescript-anthropic"}
    return "without_prompt_cache" not in test or name.endswith(("-bedrock", "-anthropic"))


def with_cache(fleet: Fleet, provider: Provider, on: int = 1) -> Chat:
    """A chat with a model whose name says that Claude serves it, and that tokens are counted."""
    model = {"MODEL": "priced/claude" if "gateway" in fleet.target.name else "priced-claude"}
    server: Server = fleet.shared(PROMPT_CACHE=on, **model)  # type: ignore[arg-type]
    return Chat(server, provider)


def logged(chat: Chat) -> dict[str, int]:
    """The tokens that the log line of the last turn of a session has."""
    deadline = time.monotonic() + PATIENCE
    while not (found := re.findall(rf"session {chat.session}: (.*)", chat.server.log)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return {name: int(count) for name, count in re.findall(r"tokens_(\w+)=(\d+)", found[-1])}


def test_a_turn_reads_the_cache_of_the_previous_turn(
    fleet: Fleet, provider: Provider, target: Target
) -> None:
    chat = with_cache(fleet, provider)
    for number in range(4):
        chat.say(f"{number} {LONG}")
    [*_, call] = chat.calls(f"3 {LONG}")
    if "gateway" in target.name:
        assert call.request["providerOptions"]["gateway"] == {"caching": "auto"}
        return
    usage = call.usage
    assert usage.read > 0.6 * usage.total, usage
    chat.server.settle()
    assert logged(chat) == {"in": usage.total, "cached": usage.read, "out": 1}


def test_a_turn_reads_the_cache_of_a_turn_with_files(
    fleet: Fleet, provider: Provider, target: Target
) -> None:
    chat = with_cache(fleet, provider)
    chat.say(f"1 {LONG}")
    samples = [("a.png", "image/png", files.png()), ("b.pdf", "application/pdf", files.PDF)]
    given = [files.sent(*sample) for sample in samples]
    assert chat.post({"prompt": f"2 {LONG}{chat.tag}", "files": given}).turn == 2
    chat.say(f"3 {LONG}")
    [call] = chat.calls(f"3 {LONG}")
    if "gateway" not in target.name:  # which caches by itself
        # Two prompts and a reply, of three prompts and two replies.
        assert call.usage.read > 0.58 * call.usage.total, call.usage


def test_later_calls_of_a_turn_read_the_cache_of_its_first_call(
    fleet: Fleet, provider: Provider, target: Target
) -> None:
    chat = with_cache(fleet, provider)
    prompt = LONG * 3
    calls = [[Call("word_count", {"text": text})] for text in (LONG, "a")]
    chat.say(prompt, *calls, ["."])
    first, second, third = chat.calls(prompt)
    if "gateway" in target.name:
        return  # it places cache points itself
    assert second.usage.read >= first.usage.total - 130, (first.usage, second.usage)
    assert third.usage.read >= second.usage.total - 130, (second.usage, third.usage)
    total = first.usage + second.usage + third.usage
    chat.server.settle()
    assert logged(chat) == {"in": total.total, "cached": total.read, "out": 3}


def test_without_prompt_cache_a_request_has_no_cache_point(
    fleet: Fleet, provider: Provider, target: Target
) -> None:
    chat = with_cache(fleet, provider, on=0)
    chat.say(LONG)
    [call] = chat.calls(LONG)
    assert "cach" not in json.dumps(call.request).lower()
    assert target.name.endswith(("gateway", call.history[0][0])) or call.usage.read == 0


def sent(call: ModelCall, messages: list[Any]) -> dict[str, Any]:
    """The request of a call, as if these were its messages."""
    plain = json.loads(json.dumps(messages))
    content = plain[-1]["content"]
    if "cache_control" in json.dumps(call.request["messages"]):
        content[-1]["cache_control"] = {"type": "ephemeral"}
    if "cachePoint" in json.dumps(call.request["messages"]):
        content.append({"cachePoint": {"type": "default"}})
    return {**call.request, "messages": plain}


def without_points(value: Any) -> Any:
    if isinstance(value, list):
        return [without_points(item) for item in value if "cachePoint" not in item]
    if isinstance(value, dict):
        return {k: without_points(v) for k, v in value.items() if k != "cache_control"}
    return value


@pytest.mark.full
def test_the_cache_saves_tokens_in_a_long_session(
    fleet: Fleet, provider: Provider, target: Target
) -> None:
    """What docs/provider.md says of 100 turns, at 280 characters a prompt and a reply."""
    chat = with_cache(fleet, provider)
    calls = []
    for number in range(1, TURNS + 1):
        prompt = f"Prompt {number}: " + LONG[:268]
        chat.say(prompt, [f"Reply {number}: " + LONG[:268]])
        calls += chat.calls(prompt)
    if "gateway" in target.name:
        return  # it places cache points itself
    history: list[Any] = []
    cut, old, whole = PromptCache(), Usage(0), Usage(0)
    for call in calls:
        messages = without_points(call.request["messages"])
        start = 1 if messages[0]["role"] == "system" else 0
        history += messages[-1:] if not history else messages[-2:]
        # As it was: the oldest turn is dropped in each turn.
        request = sent(call, [*messages[:start], *history[-KEPT - 1 :]])
        old, whole = old + cut.use(request), whole + call.usage
    # In thousands of input tokens: what is paid, what it were without a cache, and as it was.
    figures = [round(tokens / 1000) for tokens in (whole.price, whole.total, old.price)]
    said = [60, 240, 341 if target.name.endswith(("anthropic", "bedrock")) else 276]
    assert figures == pytest.approx(said, rel=0.08), (whole, old)
