"""A turn is a transaction: it commits, or the session stays unchanged."""

import asyncio
from contextlib import suppress
from unittest.mock import patch

import pytest
from client import Client
from script import Answer, Fail, Reply, Stop, ToolCall, Wait

from my_agent.harness.sessions.session_store import InProcess

COUNT = ToolCall("word_count", {"text": "a b"})


async def assert_unchanged(client: Client) -> None:
    """Assert that a first turn in session s with key k changed nothing."""
    client.model.script = []
    # The session has no owner, and the key repeats nothing.
    repeated = await client.say("Again", session="s", actor="ada", key="k")
    assert repeated.turn == 1
    await client.say("More", session="s", actor="ada")
    assert client.model.requests[-1] == ["user: Again", "assistant: ok", "user: More"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param([Reply("half"), Fail(ValueError("secret"))], "model_failed", id="failure"),
        pytest.param([Reply("half"), Stop("cut")], "model_failed", id="cut stream"),
        pytest.param(Reply(" \n\u2003\ufeff"), "empty_reply", id="blank reply"),
        pytest.param([Reply("half"), Stop("length")], "reply_incomplete", id="length limit"),
        pytest.param([Reply("half"), Stop("filter")], "reply_incomplete", id="content filter"),
    ],
)
async def test_a_failed_turn_leaves_the_session_unchanged(answer: Answer, error: str) -> None:
    client = Client([Reply("counting"), COUNT], answer)
    failed = await client.say(session="s", key="k")
    assert failed.error == error
    await assert_unchanged(client)


async def test_a_turn_with_too_many_tool_calls_leaves_the_session_unchanged() -> None:
    client = Client(COUNT, COUNT, COUNT, COUNT, max_steps=3)
    failed = await client.say(session="s", key="k")
    assert failed.error == "reply_incomplete"
    await assert_unchanged(client)


async def test_a_timed_out_turn_leaves_the_session_unchanged() -> None:
    never = asyncio.Event()
    client = Client(COUNT, [Reply("half"), Wait(never)], turn_timeout_seconds=0.5)
    failed = await client.say(session="s", key="k")
    assert failed.error == "turn_timeout"
    await assert_unchanged(client)


async def test_a_disconnect_cancels_the_turn() -> None:
    answer = Wait(asyncio.Event())
    client = Client([Reply("half"), answer])
    request = client.start(session="s", key="k")
    await answer.reached.wait()
    request.leave()
    assert (await request.response()).error == "draining"
    await assert_unchanged(client)


class Connect(Wait):
    """Waits like a client that cancels its own task for a moment when it connects."""

    async def wait(self) -> None:
        task = asyncio.current_task()
        assert task
        self.reached.set()
        task.cancel()
        for _ in range(100):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        if task.uncancel():
            raise asyncio.CancelledError
        await self.event.wait()


async def test_a_disconnect_while_the_model_connects_cancels_the_turn() -> None:
    answer = Connect(asyncio.Event())
    client = Client(answer)
    request = client.start(session="s", key="k")
    await answer.reached.wait()
    request.leave()
    assert (await request.response()).error == "draining"
    await assert_unchanged(client)


async def test_turns_of_a_session_run_in_sequence() -> None:
    first_answer = Wait(asyncio.Event())
    client = Client([first_answer, Reply("one")])
    first = client.start("First", session="s")
    await first_answer.reached.wait()
    second = client.start("Second", session="s")
    third = client.start("Third", session="s")

    other = await client.say("Other", session="other")
    assert other.turn == 1
    assert client.model.requests == [["user: First"], ["user: Other"]]

    first_answer.event.set()
    assert (await first.response()).turn == 1
    assert (await second.response()).turn == 2
    assert (await third.response()).turn == 3
    assert client.model.requests[-1] == [
        "user: First",
        "assistant: one",
        "user: Second",
        "assistant: ok",
        "user: Third",
    ]


async def test_a_full_queue_rejects_a_turn() -> None:
    answer = Wait(asyncio.Event())
    client = Client([answer, Reply("one")], session_queue=1)
    running = client.start(session="s")
    await answer.reached.wait()
    waiting = client.start(session="s")
    refused = await client.say(session="s")
    assert refused.error == "session_busy"
    answer.event.set()
    assert (await running.response()).turn == 1
    assert (await waiting.response()).turn == 2


async def test_a_disconnect_frees_a_place_in_the_queue() -> None:
    answer = Wait(asyncio.Event())
    client = Client([answer, Reply("one")], session_queue=1)
    running = client.start("First", session="s")
    await answer.reached.wait()
    leaving = client.start("Second", session="s")
    assert (await client.say(session="s")).error == "session_busy"
    leaving.leave()
    assert (await leaving.response()).error == "draining"

    next = client.start("Third", session="s")
    answer.event.set()
    assert (await running.response()).turn == 1
    assert (await next.response()).turn == 2
    assert client.model.requests[-1] == ["user: First", "assistant: one", "user: Third"]
    assert not client.runtime.sessions._locks


async def test_a_disconnect_ends_a_turn_even_if_the_store_ignores_it() -> None:
    client = Client(Reply("ok"))
    loading = asyncio.Event()

    async def load(session_id: str) -> None:
        loading.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    with patch.object(client.runtime.sessions.store, "load", load):
        request = client.start(session="s")
        await loading.wait()
        request.leave()
        assert (await request.response()).error == "draining"
    assert client.model.requests == []


async def test_the_time_limit_excludes_the_queue() -> None:
    client = Client(turn_timeout_seconds=0.5)
    async with client.runtime.sessions.open("s", None):
        waiting = client.start(session="s")
        await asyncio.sleep(0.75)  # longer than the limit
    assert (await waiting.response()).turn == 1


async def test_the_least_recently_used_session_is_dropped() -> None:
    client = Client(session_capacity=2)
    await client.say(session="first")
    await client.say(session="second")
    assert (await client.say(session="first")).turn == 2
    await client.say(session="third")
    assert (await client.say(session="first")).turn == 3
    assert (await client.say(session="second")).turn == 1


async def test_an_idle_session_is_dropped() -> None:
    now = 0.0
    client = Client(session_idle_seconds=60)
    client.runtime.sessions.store = InProcess(client.runtime.settings, timer=lambda: now)
    await client.say(session="s")
    now += 59
    assert (await client.say(session="s")).turn == 2
    now += 61
    assert (await client.say(session="s")).turn == 1


async def test_a_repeated_turn_restarts_the_idle_time() -> None:
    now = 0.0
    client = Client(session_idle_seconds=60)
    client.runtime.sessions.store = InProcess(client.runtime.settings, timer=lambda: now)
    await client.say(session="s", key="k")
    now += 40
    assert (await client.say(session="s", key="k")).turn == 1
    now += 40
    assert (await client.say(session="s")).turn == 2


async def test_a_request_without_a_session_creates_a_session() -> None:
    client = Client()
    first = await client.say()
    second = await client.say()
    assert first.turn == second.turn == 1
    assert "" != first.session_id != second.session_id


async def test_a_key_and_an_end_need_a_session() -> None:
    client = Client()
    assert (await client.say(key="k")).error == "invalid_request"
    assert (await client.end("")).error == "invalid_request"


async def test_actor_and_key_are_validated() -> None:
    client = Client()
    assert (await client.say(session="s", actor="é", key="é")).error == "invalid_actor"
    assert (await client.say(session="s", key="é")).error == "invalid_request"


async def test_the_first_actor_owns_a_session() -> None:
    client = Client()
    assert (await client.say(session="s", actor="ada")).turn == 1
    assert (await client.say(session="s", actor="bob")).error == "session_forbidden"
    assert (await client.say(session="s")).error == "session_forbidden"
    assert (await client.say(session="s", actor="ada")).turn == 2


async def test_callers_without_an_actor_own_their_sessions() -> None:
    client = Client()
    assert (await client.say(session="s")).turn == 1
    assert (await client.say(session="s", actor="ada")).error == "session_forbidden"
    assert (await client.end("s", actor="ada")).error == "session_forbidden"
    assert (await client.say(session="s")).turn == 2


async def test_an_ended_session_starts_again() -> None:
    client = Client()
    await client.say(session="s")
    assert (await client.end("s")).body == {"session_id": "s", "ended": True}
    assert (await client.say(session="s", actor="ada")).turn == 1


async def test_an_unknown_session_can_be_ended() -> None:
    assert (await Client().end("unknown")).status == 200


async def test_a_repeated_key_returns_its_turn() -> None:
    client = Client()
    assert (await client.say(session="s")).turn == 1
    assert (await client.say(session="s")).turn == 2
    assert (await client.say(session="s", key="third")).turn == 3
    assert (await client.say(session="s", key="third")).turn == 3
    assert (await client.say(session="s", key="fourth")).turn == 4
    assert (await client.say(session="s", key="third")).turn == 3
    assert (await client.say(session="s")).turn == 5
    assert (await client.say(session="s", key="fourth")).turn == 4
    assert (await client.say(session="s")).turn == 6


def client_with_plain_history(*script: Answer) -> Client:
    """Return a client with a limit of 8 messages, without hooks of capabilities."""
    client = Client(*script, history_messages=8)
    client.runtime.sessions.hooks = ()
    return client


async def test_a_long_history_is_cut_to_half() -> None:
    client = client_with_plain_history(*[Reply(f"reply {n}") for n in range(1, 7)])
    for number in range(1, 7):
        await client.say(f"prompt {number}", session="s")
    assert len(client.model.requests[4]) == 9  # four turns and the fifth prompt
    assert client.model.requests[5] == [
        "user: prompt 4",
        "assistant: reply 4",
        "user: prompt 5",
        "assistant: reply 5",
        "user: prompt 6",
    ]


async def test_a_long_turn_is_kept_whole() -> None:
    client = client_with_plain_history(Reply("one"), COUNT, COUNT, COUNT, COUNT, Reply("two"))
    await client.say("First", session="s")
    await client.say("Second", session="s")
    await client.say("Third", session="s")
    assert client.model.requests[-1] == [
        "user: Second",
        *["tool call: word_count", "tool result"] * 4,
        "assistant: two",
        "user: Third",
    ]


async def test_the_system_prompt_is_not_stored() -> None:
    client = Client()
    await client.say(session="s")
    assert "system" not in str(await client.runtime.sessions.store.load("s"))


async def test_a_turn_is_replaced_with_all_later_turns() -> None:
    client = Client()
    for prompt in ("First", "Second", "Third"):
        await client.say(prompt, session="s")
    replacement = await client.say("Other", session="s", replace_turn=2)
    assert replacement.turn == 2
    await client.say("More", session="s")
    assert client.model.requests[-2] == ["user: First", "assistant: ok", "user: Other"]
    assert client.model.requests[-1] == [
        "user: First",
        "assistant: ok",
        "user: Other",
        "assistant: ok",
        "user: More",
    ]


async def test_a_fork_is_a_new_session_with_the_first_turns() -> None:
    client = Client()
    await client.say("First", session="s")
    await client.say("Second", session="s")
    fork = await client.post({"fork": "copy", "at_turn": 1}, session="s")
    assert fork.status == 200
    assert (await client.say("Other", session="copy")).turn == 2
    assert client.model.requests[-1] == ["user: First", "assistant: ok", "user: Other"]
    assert (await client.say("Third", session="s")).turn == 3
