"""What an actor may use: turns and tokens, of one process or of all replicas."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.auth.issuer import Issuer
from tests.auth.test_tokens import bearer
from tests.conformance.chat import Chat
from tests.conformance.client import JSON, Reply
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import HANG
from tests.conformance.targets import Target
from tests.stores.agents import Home
from tests.stores.stores import Backing


def say(server: Server, provider: Provider, issuer: Issuer, who: str, text: str = "Hello") -> Reply:
    return Chat(server, provider).say(text, headers={**bearer(issuer.token(who)), **JSON})


def assert_limited(reply: Reply, what: str, most_seconds: int) -> None:
    assert (reply.status, reply.json["error"]["type"]) == (429, "rate_limited"), reply
    assert reply.json["error"]["message"] == f"This actor has used up {what}."
    assert 1 <= int(reply.headers["retry-after"]) <= most_seconds


def test_turns_and_tokens_are_limited_for_each_actor(
    fleet: Fleet, provider: Provider, issuer: Issuer
) -> None:
    # By day: a minute may end in between.
    turns = fleet.fresh(**issuer.environment, ACTOR_TURNS_PER_DAY=2)
    for _ in range(2):
        assert say(turns, provider, issuer, "ada").turn == 1
    for _ in range(2):
        assert_limited(say(turns, provider, issuer, "ada"), "2 turns per day", 86_400)
    assert say(turns, provider, issuer, "bob").turn == 1

    tokens = fleet.fresh(**issuer.environment, ACTOR_TOKENS_PER_DAY=1)
    assert say(tokens, provider, issuer, "ada").turn == 1
    assert_limited(say(tokens, provider, issuer, "ada"), "1 tokens per day", 86_400)
    assert say(tokens, provider, issuer, "bob").turn == 1

    minute = fleet.fresh(**issuer.environment, ACTOR_TURNS_PER_MINUTE=1)
    replies = [say(minute, provider, issuer, "ada") for _ in range(3)]
    limited = [reply for reply in replies if reply.status != 200]
    assert limited, "three turns within two minutes"
    for reply in limited:
        assert_limited(reply, "1 turns per minute", 60)


def test_forks_count_as_turns(fleet: Fleet, provider: Provider, issuer: Issuer) -> None:
    server = fleet.fresh(**issuer.environment, ACTOR_TURNS_PER_DAY=3)
    ada, chat = {**bearer(issuer.token("ada")), **JSON}, Chat(server, provider)
    assert chat.say("Hello", headers=ada).turn == 1
    for number in range(100):
        reply = chat.post({"fork": f"{chat.session}-{number}", "at_turn": 1}, ada)
        if number < 2:
            assert reply.json["fork"] == f"{chat.session}-{number}"
        else:
            assert_limited(reply, "3 turns per day", 86_400)
    assert chat.elsewhere(session=f"{chat.session}-2").end(ada).status == 200
    assert_limited(chat.say("Next", headers=ada), "3 turns per day", 86_400)
    assert chat.end(ada).status == 200, "an actor can always end its sessions"


@pytest.mark.full
def test_forks_count_against_the_limits_of_the_process_and_the_session(
    fleet: Fleet, provider: Provider, issuer: Issuer
) -> None:
    ada = bearer(issuer.token("ada"))
    limits = {"MAX_TURNS": (1, "server_busy"), "SESSION_QUEUE": (0, "session_busy")}
    for name, (most, error) in limits.items():
        settings = {**issuer.environment, name: most}
        server = fleet.fresh(**settings)
        chat = Chat(server, provider)
        assert chat.say("Hello", headers=ada).status == 200
        running = chat.start("Wait.", ["Well, ", HANG], headers=ada)
        assert running.event() == ("message", "Well, ")
        fork = {"fork": f"{chat.session}-1", "at_turn": 1}
        assert chat.post(fork, ada).error == error
        running.leave()


def test_replicas_share_the_limits_in_valkey(
    target: Target, provider: Provider, issuer: Issuer, tmp_path: Path, stack: ExitStack
) -> None:
    backing = Backing(tmp_path, stack)
    home = Home(replace(target, store="valkey"), backing, tmp_path, "valkey")
    given = {**home.store.environment(home.store.address), **issuer.environment}
    servers = []
    for _ in range(2):
        server = Server(
            home.target, home.folder, provider.origin, {**given, "ACTOR_TURNS_PER_DAY": 3}
        )
        stack.callback(server.stop)
        servers.append(server)
    one, two = servers
    for server in (one, two, one):
        assert say(server, provider, issuer, "ada").turn == 1
    for server in (two, one):
        assert_limited(say(server, provider, issuer, "ada"), "3 turns per day", 86_400)
    assert say(two, provider, issuer, "bob").turn == 1
