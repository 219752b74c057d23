"""A turn is a transaction: it is committed whole, or it leaves no trace."""

import asyncio
from typing import Any

import pytest
from client import JSON, POST, SESSION, Client

from app.sessions import Session

CALL = ["counting", ("call",)]
FAILURES = {
    "fails": (["half", ValueError("secret")], "model_failed"),
    "is cut": (["half", ("cut",)], "model_failed"),
    "says only white space": ([" \n\u2003\ufeff"], "empty_reply"),
    "is cut by its length": (["half", ("length",)], "reply_incomplete"),
    "is filtered": (["half", ("filter",)], "reply_incomplete"),
    "calls tools for ever": (CALL, "reply_incomplete"),
    "takes too long": (["half", 3], "turn_timeout"),
}
# What session@actor#key comes to, a turn's number or error; ! ends the session, ~ waits first.
CONVERSATIONS = {
    "the least recently used session is forgotten": "a=1 b=1 a=2 c=1 a=3 b=1",
    "an idle session is forgotten": "s#k=1 ~s#k=1 ~s=2 ~~s=1",
    "a caller without a session gets a new one": "=1 =1 #k=invalid_request !=invalid_request",
    "an actor and a key have to be valid": "s@é#é=invalid_actor s#é=invalid_request",
    "the first actor owns a session": "s@a=1 s@b=session_forbidden s=session_forbidden s@a=2",
    "nobody is an actor too": "s=1 s@a=session_forbidden s@a!=session_forbidden s!=end s@a=1",
    "a session that nobody knows can be ended": "t!=end",
    "the key of a turn repeats it": "s=1 s=2 s#k=3 s#k=3 s#l=4 s#k=3 s=5 s#l=4",
}


@pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS)
async def test_in_a_conversation(conversation: str) -> None:
    client = Client(session_capacity=2, session_idle_seconds=2 if "~" in conversation else 60)
    for turn in conversation.split():
        address, outcome = turn.split("=")
        assert await client.say(address) == outcome


@pytest.mark.parametrize(("step", "error"), FAILURES.values(), ids=FAILURES)
async def test_no_trace_is_left_when_the_model(step: Any, error: str) -> None:
    seconds = 1 if error == "turn_timeout" else 60
    client = Client(CALL, step, step, step, max_steps=3, turn_timeout_seconds=seconds)
    assert await client.say("s#k", "1") == error
    client.model.script = []
    assert [await client.say("s@a#k", "2"), await client.say("s@a", "3")] == ["1", "2"]
    assert client.model.calls[-1] == "2 ok 3"


async def test_turns_of_a_session_run_one_by_one_and_a_full_queue_refuses() -> None:
    client = Client(["half", 3], ["ok"], [1.2, "ok"], session_queue=2, turn_timeout_seconds=2)
    early = [client.say("s", "1", 1), client.say("s", "2"), client.say("s", "3", 0.2)]
    turns = [asyncio.create_task(turn) for turn in (*early, client.say("s", "4"), client.say("t"))]
    assert await turns[0] == "draining"
    turns += [asyncio.create_task(client.say("s", n)) for n in "56"]
    assert " ".join(await asyncio.gather(*turns)) == "draining 1 draining session_busy 1 2 3"
    assert client.model.calls == ["1", "hi", "2", "2 ok 5", "2 ok 5 ok 6"]
    assert not client.runtime.sessions._locks


async def test_history_is_cut_by_half_in_front_of_a_prompt_and_a_long_turn_is_kept_whole() -> None:
    client = Client(*"abcde", *[[("call",)]] * 4, history_messages=8)
    client.runtime.sessions.session_class = Session  # and no capability's
    for prompt in "1234567":
        await client.say("s", prompt)
    assert client.model.calls[4:6] == ["1 a 2 b 3 c 4 d 5", "4 d 5 e 6"]
    assert client.model.calls[10] == "6" + " (toolUse) (toolResult)" * 4 + " ok 7"
    assert "system" not in str(await client.runtime.sessions.store.load("s"))


async def test_a_turn_is_replaced_with_all_after_it_and_a_fork_is_a_new_session() -> None:
    client = Client(["a"], ["b"], ["c"], ["d"])
    for prompt in "123":
        await client.say("s", prompt)
    for body in ('{"replace_turn": 2, "prompt": "4"}', '{"fork": "t", "at_turn": 1}'):
        status, _, text = await client.send(POST, {**JSON, SESSION: "s"}, body.encode())
        assert status == 200, text
    assert [await client.say("s", "5"), await client.say("t", "6")] == ["3", "2"]
    assert client.model.calls[3:] == ["1 a 4", "1 a 4 d 5", "1 a 6"]
