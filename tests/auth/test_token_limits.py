"""The tokens that an actor may use: all that a model is sent for it, whatever becomes of it."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.auth.conftest import with_auth
from tests.auth.issuer import Issuer
from tests.auth.test_limits import assert_limited, say
from tests.auth.test_tokens import bearer
from tests.bedrock.agents import Agent, sentences, with_knowledge_base
from tests.conformance.chat import Chat
from tests.conformance.client import JSON, Exchange
from tests.conformance.prompt_cache import Usage
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import CUT, HANG, Refuse, Step
from tests.conformance.targets import TARGETS, Target
from tests.memory.provider import MemoryProvider
from tests.stores.agents import Home
from tests.stores.servers import wait_for
from tests.stores.stores import Backing

DAY = 86_400
LIMIT = 60_000
LONG = "A long story. " * 1500
ESTIMATE = len(LONG) // 4  # tokens
OUTPUT = 1  # of each answer, as the provider says


@pytest.fixture
def usage(provider: Provider) -> Iterator[int]:
    """The tokens of a call, as the provider counts them, however long it is."""
    before, provider.usage = provider.usage, Usage(plain=99)
    yield provider.usage.total + OUTPUT
    provider.usage = before


def tokens_sent(provider: Provider, first: int) -> int:
    """About how many tokens the provider received after its first calls."""
    return sum(call.size for call in provider.calls[first:]) // 4


def leave(chat: Chat, text: str, headers: dict[str, str]) -> bool:
    """Start a turn, and leave after its first words; return False if it was refused."""
    exchange = chat.start(text, ["Well, ", HANG], headers=headers)
    if exchange.head().status == 429:
        assert_limited(exchange.reply(), f"{LIMIT} tokens per day", DAY)
        return False
    assert exchange.event() == ("message", "Well, ")
    exchange.leave()
    chat.gone(text)
    chat.server.settle()
    return True


def test_tokens_of_callers_who_leave_are_counted(
    fleet: Fleet, provider: Provider, issuer: Issuer, usage: int
) -> None:
    server = fleet.fresh(**issuer.environment, ACTOR_TOKENS_PER_DAY=LIMIT)
    ada, chat = bearer(issuer.token("ada")), Chat(server, provider)
    for number in range(3):  # a long history for few tokens
        assert chat.say(f"{number}. {LONG}", headers=ada).status == 200
    first = len(provider.calls)
    turns = [leave(chat, f"Go on, {number}.", ada) for number in range(20)]
    assert 0 < sum(turns) < 6
    assert LIMIT - 3 * usage <= tokens_sent(provider, first) * 1.1
    assert tokens_sent(provider, first) < LIMIT + 4 * ESTIMATE

    # Turns that run at once: each is counted before its prompt is sent.
    eve, first = bearer(issuer.token("eve")), len(provider.calls)
    chats = [Chat(server, provider) for _ in range(20)]
    started = [one.start(LONG, [HANG], headers={**eve, **JSON}) for one in chats]

    def refused() -> list[Exchange]:
        return [exchange for exchange in started if exchange.answered(within=0)]

    wait_for("an end of each", lambda: len(refused()) + len(provider.calls) - first == 20)
    replies = [exchange.reply() for exchange in refused()]
    for exchange in started:
        exchange.leave()
    for reply in replies:
        assert_limited(reply, f"{LIMIT} tokens per day", DAY)
    assert len(replies) >= 20 - LIMIT // ESTIMATE - 1
    assert tokens_sent(provider, first) < LIMIT + 2 * ESTIMATE


def test_a_turn_counts_as_its_usage_says(
    fleet: Fleet, provider: Provider, issuer: Issuer, usage: int
) -> None:
    for limit in (2 * usage, 2 * usage + 1):
        server = fleet.fresh(**issuer.environment, ACTOR_TOKENS_PER_DAY=limit)
        ada = bearer(issuer.token("ada"))
        for _ in range(2 + limit % 2):
            assert Chat(server, provider).say(LONG, headers=ada).turn == 1
        assert_limited(say(server, provider, issuer, "ada"), f"{limit} tokens per day", DAY)


@pytest.mark.full
def test_turns_that_fail_count(fleet: Fleet, provider: Provider, issuer: Issuer) -> None:
    settings = {**issuer.environment, "ACTOR_TOKENS_PER_DAY": ESTIMATE, "TURN_TIMEOUT_SECONDS": 2}
    server = fleet.fresh(**settings)
    failing: dict[str, Step] = {
        "cut": ["Well, ", CUT],
        "refused": [Refuse(400)],
        "late": ["Well, ", HANG],
    }
    for name, step in failing.items():
        headers = {**bearer(issuer.token(name)), **JSON}
        assert Chat(server, provider).say(LONG, step, headers=headers).status >= 500, name
        assert_limited(say(server, provider, issuer, name), f"{ESTIMATE} tokens per day", DAY)
    assert say(server, provider, issuer, "bob").turn == 1


def base_of(target: Target) -> Target:
    """The target before it was given tokens."""
    return next(one for one in TARGETS if target.name.startswith(one.name))


@pytest.mark.full
def test_other_calls_of_a_turn_count(
    target: Target, provider: Provider, issuer: Issuer, usage: int, tmp_path: Path, stack: ExitStack
) -> None:
    both = with_auth(base_of(target), "compaction", "fallback")
    settings = {
        **issuer.environment,
        "ACTOR_TOKENS_PER_DAY": 5 * usage,
        "HISTORY_MESSAGES": 4,
        "MODEL_FALLBACK": "second-model",
    }
    server = Server(both, tmp_path, provider.origin, settings)
    stack.callback(server.stop)
    # Three turns, and a summary for the fourth one, which itself is the last that may be.
    ada, chat = bearer(issuer.token("ada")), Chat(server, provider)
    for text in ("One.", "Two.", "Three.", "Four."):
        assert chat.say(text, headers=ada).status == 200
    limit = f"{5 * usage} tokens per day"
    assert_limited(chat.say("Five.", headers={**ada, **JSON}), limit, DAY)
    # What the first model was sent counts, and so does what the second one was sent in its place.
    bob, chat = bearer(issuer.token("bob")), Chat(server, provider)
    provider.script(f"test-model: {LONG}{chat.tag}", [Refuse(503)])
    assert chat.say(LONG, headers=bob).status == 200
    assert_limited(chat.say("Next.", headers={**bob, **JSON}), limit, DAY)


@pytest.mark.full
def test_the_extraction_of_facts_counts(
    target: Target, issuer: Issuer, tmp_path: Path, stack: ExitStack
) -> None:
    provider = MemoryProvider()
    stack.callback(provider.close)
    provider.summarize, provider.usage = sentences, Usage(plain=99)
    usage = provider.usage.total + OUTPUT
    answers = {"model": "openai-compatible", "extras": "[auth]"}
    remembering = with_knowledge_base(base_of(target), **answers)
    variant = remembering.variant.partition("+")[0]
    agent = Agent(replace(remembering, variant=variant), tmp_path, provider)
    stack.callback(agent.stop)
    server = agent.fresh(**issuer.environment, ACTOR_TOKENS_PER_DAY=3 * usage)
    for text in ("My cat is Tom.", "My dog is Rex."):
        assert say(server, provider, issuer, "ada", text).turn == 1
        agent.idle(server)
    assert len(agent.kept("ada")) == 2
    limit = f"{3 * usage} tokens per day"
    assert_limited(say(server, provider, issuer, "ada"), limit, DAY)


@pytest.mark.full
@pytest.mark.usefixtures("usage")
def test_a_prompt_that_is_sent_again_counts_again(
    fleet: Fleet, provider: Provider, issuer: Issuer
) -> None:
    limit = 3 * ESTIMATE
    server = fleet.fresh(**issuer.environment, ACTOR_TOKENS_PER_DAY=limit)
    ada, chat = bearer(issuer.token("ada")), Chat(server, provider)
    for number in range(3):
        assert chat.say(f"{number}. {LONG}", headers=ada).status == 200
    provider.window = len(LONG)
    try:
        assert chat.say("Go on.", headers=ada).status == 200
    finally:
        provider.window = None
    assert len(chat.calls("Go on.")) > 1
    assert_limited(chat.say("Next.", headers={**ada, **JSON}), f"{limit} tokens per day", DAY)


def replicas(
    target: Target,
    provider: Provider,
    folder: Path,
    stack: ExitStack,
    settings: dict[str, int | str],
) -> Sequence[Server]:
    """Two servers on one Valkey."""
    home = Home(replace(target, store="valkey"), Backing(folder, stack), folder, "valkey")
    given = {**home.store.environment(home.store.address), **settings}
    servers = [Server(home.target, home.folder, provider.origin, given) for _ in range(2)]
    for server in servers:
        stack.callback(server.stop)
    return servers


@pytest.mark.full
@pytest.mark.usefixtures("usage")
def test_replicas_share_the_count_of_tokens(
    target: Target, provider: Provider, issuer: Issuer, tmp_path: Path, stack: ExitStack
) -> None:
    settings = {**issuer.environment, "ACTOR_TOKENS_PER_DAY": LIMIT}
    one, two = replicas(target, provider, tmp_path, stack, settings)
    ada, chat = bearer(issuer.token("ada")), Chat(one, provider)
    for number in range(3):
        assert chat.say(f"{number}. {LONG}", headers=ada).status == 200
    first = len(provider.calls)
    chats = [chat.elsewhere(server) for server in (one, two)]
    turns = [leave(chats[number % 2], f"Go on, {number}.", ada) for number in range(8)]
    assert 0 < sum(turns) < 6
    assert tokens_sent(provider, first) < LIMIT + 4 * ESTIMATE
