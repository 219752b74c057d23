"""The limits of tool calls: in one step, at once, and of a result."""

import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conformance.chat import Chat
from tests.conformance.client import JSON
from tests.conformance.provider import PATIENCE, Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import Call
from tests.conformance.targets import Target
from tests.conformance.waiting import ASKED, answer, delete, ids, read, runs

pytestmark = pytest.mark.about("turns")

TOO_MANY = "Too many calls in one step: at most {} run."


@pytest.fixture
def server(own_agents: Fleet) -> Server:
    return own_agents.shared()


def results(chat: Chat, text: str) -> list[str]:
    """What the model is told of the tools of a turn."""
    history = chat.history(chat.calls(text)[-1])
    return [str(result) for role, result, *_ in history if role == "result"]


def ran(chat: Chat) -> list[tuple[str, str]]:
    """The begins and ends of `work` in this chat, in their order."""
    path = chat.server.folder / "runs"
    noted = path.read_text().splitlines() if path.exists() else []
    found = (line.split(f"{chat.session}-") for line in noted if chat.session in line)
    return [(how.strip(), number) for how, number in found]


def work(chat: Chat, count: int) -> list[Call]:
    return [Call("work", {"order_id": f"{chat.session}-{number}"}) for number in range(count)]


def test_the_calls_over_the_limit_get_an_error_result(
    own_agents: Fleet, provider: Provider
) -> None:
    chat = Chat(own_agents.shared(MAX_TOOL_CALLS=3), provider)
    reply = chat.say("Work.", work(chat, 5), ["Done."], headers=JSON)
    assert reply.json["reply"] == "Done."
    worked = [f"worked on {chat.session}-{number}" for number in range(3)]
    assert sorted(results(chat, "Work.")) == sorted([*worked, *[TOO_MANY.format(3)] * 2])
    assert sorted(number for how, number in ran(chat) if how == "begin") == ["0", "1", "2"]
    assert chat.server.log.count("WARNING model: 5 calls in one step, at most 3 run\n") == 1
    assert chat.say("Next.").turn == 2


def test_each_step_has_the_whole_limit(own_agents: Fleet, provider: Provider) -> None:
    chat = Chat(own_agents.shared(MAX_TOOL_CALLS=3), provider)
    calls = work(chat, 6)
    assert chat.say("Work.", calls[:3], calls[3:], ["Done."]).turn == 1
    assert results(chat, "Work.") == [f"worked on {chat.session}-{number}" for number in range(6)]


def test_at_most_so_many_tools_run_at_once_in_the_order_of_the_calls(
    own_agents: Fleet, provider: Provider
) -> None:
    chat = Chat(own_agents.shared(MAX_TOOLS_AT_ONCE=2), provider)
    assert chat.say("Work.", work(chat, 6), ["Done."]).turn == 1
    running, most = 0, 0
    for how, _ in ran(chat):
        running += 1 if how == "begin" else -1
        most = max(most, running)
    assert most == 2
    assert [number for how, number in ran(chat) if how == "begin"] == [*"012345"]
    assert results(chat, "Work.") == [f"worked on {chat.session}-{number}" for number in range(6)]


@pytest.mark.parametrize("size", [1000, 1001, 5000])
def test_a_long_result_is_cut(own_agents: Fleet, provider: Provider, size: int) -> None:
    chat = Chat(own_agents.shared(MAX_RESULT_CHARS=1000), provider)
    reply = chat.say("Read.", [Call("read_pages", {"count": size})], ["Done."])
    assert reply.turn == 1
    [result] = results(chat, "Read.")
    if size <= 1000:
        assert result == "x" * size
        return
    note = f"… [cut: the result was {size} characters long]"
    assert len(result) <= 1000
    assert result.endswith(f"x{note}")
    assert set(result.removesuffix(note)) == {"x"}
    assert len(result) > 900


def test_the_calls_over_the_limit_do_not_ask(approvals: Fleet, provider: Provider) -> None:
    chat = Chat(approvals.shared(MAX_TOOL_CALLS=2), provider)
    calls = [delete(chat, "1"), read(chat), delete(chat, "2"), read(chat, "2")]
    waiting = ids(chat.say(ASKED, calls, ["Done."], headers=JSON))
    assert len(waiting) == 1
    assert answer(chat, waiting).json["reply"] == "Done."
    assert (runs(chat, name="1"), runs(chat, name="2")) == (1, 0)
    assert (runs(chat, "read_order"), runs(chat, "read_order", "2")) == (1, 0)
    assert results(chat, ASKED).count(TOO_MANY.format(2)) == 2


def test_a_long_result_beside_a_waiting_call_is_cut_first(
    approvals: Fleet, provider: Provider
) -> None:
    chat = Chat(approvals.shared(MAX_RESULT_CHARS=1000, MAX_SNAPSHOT_BYTES=20_000), provider)
    pages = Call("read_pages", {"count": 100_000})
    waiting = ids(chat.say(ASKED, [pages, delete(chat)], ["Done."], headers=JSON))
    assert answer(chat, waiting).json["reply"] == "Done."
    assert runs(chat) == 1
    first, second = sorted(results(chat, ASKED), key=len)
    assert first.startswith("deleted ")
    assert len(second) <= 1000
    assert second.endswith("[cut: the result was 100000 characters long]")


# Prints the longest wait for /ping in seconds until its input ends; the provider of these tests
# shares a process with them, and keeps them waiting itself.
PINGER = """
import http.client, select, sys, time
longest = 0.0
while not select.select([sys.stdin], [], [], 0.01)[0]:
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
    connection.request("GET", "/ping")
    assert connection.getresponse().status == 200
    longest = max(longest, time.monotonic() - began)
print(longest)
"""


@contextmanager
def pinged(server: Server) -> Iterator[list[float]]:
    """While a block runs, ask for /ping; then the list has the longest wait in seconds."""
    command = [sys.executable, "-c", PINGER, str(server.address[1])]
    waits: list[float] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as pinger:
        yield waits
        longest, _ = pinger.communicate(timeout=PATIENCE)
    waits.append(float(longest))


@pytest.mark.full
def test_a_thousand_calls_do_not_keep_others_waiting(
    target: Target, server: Server, provider: Provider
) -> None:
    calls = [Call("read_order", {"order_id": f"o-{number}"}) for number in range(1000)]
    assert Chat(server, provider).say("Hello.").turn == 1
    limit = 0.1 if target.is_node else 0.3
    # Another test that runs now can keep the server waiting once; the shortest of six waits is
    # what the server itself takes.
    shortest = math.inf
    for _ in range(6):
        chat = Chat(server, provider)
        with pinged(server) as busy:
            reply = chat.say("Read.", calls, ["Done."], headers=JSON)
        assert reply.json["reply"] == "Done."
        assert results(chat, "Read.").count(TOO_MANY.format(64)) == 936
        shortest = min(shortest, busy[0])
        if shortest < limit:
            return
    with pinged(server) as idle:
        time.sleep(3)  # what this machine has to do besides
    assert shortest < limit * max(1.0, idle[0] / 0.005)
