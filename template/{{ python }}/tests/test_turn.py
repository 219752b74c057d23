"""A turn is a transaction: it is committed whole, or it leaves no trace."""

import asyncio
from typing import Any

import pytest
from app.contract import AgentError, Ask
from app.parts import Parts
from app.settings import Settings
from app.turn import take_turn
from conftest import ScriptedModel

CALL: list[Any] = ["counting ", {"word_count": {"text": "a b"}}]
CALLS = [(CALL, "=success"), ([{"word_count": {}}], "=error"), ([{"no_such_tool": {}}], "=error")]
FAILURES = {
    "fails at once": ([ValueError("secret")], "model_failed"),
    "fails in the middle": (["half", ValueError("secret")], "model_failed"),
    "is cut": (["half", ("cut",)], "model_failed"),
    "says nothing": ([], "empty_reply"),
    "says only white space": ([" \n\u2003\ufeff"], "empty_reply"),
    "is cut by its length": (["half", ("length",)], "reply_incomplete"),
    "is filtered": (["half", ("filter",)], "reply_incomplete"),
    "calls tools for ever": (CALL, "reply_incomplete"),
    "hangs": (["half", None], "turn_timeout"),
}


class Talk:
    """Conversations with one scripted model; `heard` is every chunk that was emitted."""

    def __init__(self, *script: list[Any], **settings: Any) -> None:
        self.parts = Parts(Settings(**settings))
        self.parts.model = self.model = ScriptedModel(*script)
        self.heard: list[str] = []

    async def hear(self, chunk: str) -> None:
        self.heard.append(chunk)

    async def say(self, prompt: str, id: str = "s", actor: str | None = None, key: str = "") -> Any:
        """The committed turn, or the type of the error."""
        try:
            return await take_turn(self.parts, Ask(id, actor, key or None, prompt), self.hear)
        except AgentError as error:
            return error.type


async def test_a_session_is_its_own_turns_in_order() -> None:
    talk = Talk(["good ", "day"])
    last = await talk.say("one", "a")
    assert last == {"actor": None, "turn": 1, "key": None, "reply": "good day"}
    assert talk.heard == ["good ", "day"]
    assert (await talk.say("two", "b"))["turn"] == 1
    assert (await talk.say("three", "a"))["turn"] == 2
    assert talk.model.calls == [["one"], ["two"], ["one", "good day", "three"]]


@pytest.mark.parametrize("prelude", [[], [CALL]], ids=["", "after a tool call"])
@pytest.mark.parametrize(("step", "error"), FAILURES.values(), ids=FAILURES)
async def test_no_trace_is_left_when_the_model(step: Any, error: str, prelude: Any) -> None:
    talk = Talk(["hi"], *prelude, step, step, step, max_steps=3, turn_timeout_seconds=1)
    await talk.say("one")
    assert await talk.say("two", key="k") == error
    talk.model.script.clear()
    assert (await talk.say("three", key="k"))["turn"] == 2
    assert talk.model.calls[-1] == ["one", "hi", "three"]


@pytest.mark.parametrize(("call", "outcome"), CALLS)
async def test_tool_calls_are_committed_with_their_results(call: Any, outcome: str) -> None:
    talk = Talk(call, ["done"])
    last = await talk.say("one")
    assert last["reply"] == "".join(talk.heard) == "".join(call[:-1]) + "done"
    await talk.say("two")
    _, called, result, *rest = talk.model.calls[-1]
    assert (called, result) == (f"{''.join(call[:-1])}({next(iter(call[-1]))})", outcome)
    assert rest == ["done", "two"]


async def test_a_cancelled_turn_leaves_no_trace_and_lets_the_next_one_in() -> None:
    talk = Talk(["half", None])
    turn = asyncio.create_task(talk.say("one"))
    waiter, leaver = asyncio.create_task(talk.say("two")), asyncio.create_task(talk.say("three"))
    await asyncio.sleep(0.05)
    leaver.cancel()
    turn.cancel()
    assert (await waiter)["turn"] == 1
    assert talk.model.calls == [["one"], ["two"]]


async def test_turns_of_one_session_run_one_by_one_and_a_full_queue_refuses() -> None:
    gate = asyncio.Event()
    talk = Talk([gate, "ok"], session_queue=2)
    turns = [asyncio.create_task(talk.say(str(n))) for n in range(4)]
    await asyncio.sleep(0.05)
    assert await turns.pop() == "session_busy"
    assert (await talk.say("other", "another session"))["turn"] == 1
    gate.set()
    assert [(await turn)["turn"] for turn in turns] == [1, 2, 3]
    assert (await talk.say("4"))["turn"] == 4
    assert talk.model.calls[-1] == ["0", "ok", "1", "ok", "2", "ok", "4"]


async def test_the_least_recently_used_session_is_forgotten_even_while_its_turn_runs() -> None:
    talk = Talk(["a"], ["b"], session_capacity=2)
    for id in ("a", "b", "a", "c"):
        await talk.say(id, id)
    assert (await talk.say("a", "a"))["turn"] == 3
    assert (await talk.say("b", "b"))["turn"] == 1
    gate = asyncio.Event()
    talk.model.script = [[gate, "late"]]
    turn = asyncio.create_task(talk.say("a", "a"))
    await asyncio.sleep(0.05)
    for id in ("d", "e", "f"):
        await talk.say(id, id)
    gate.set()
    assert (await turn)["turn"] == (await talk.say("a", "a"))["turn"] - 1 == 4


async def test_a_session_belongs_to_the_actor_of_its_first_turn() -> None:
    talk = Talk([ValueError()])
    assert await talk.say("one", actor="bob") == "model_failed"
    assert (await talk.say("one", actor="alice"))["actor"] == "alice"
    assert await talk.say("two", actor="bob") == "session_forbidden"
    assert await talk.say("two") == "session_forbidden"
    assert (await talk.say("two", actor="alice"))["turn"] == 2


async def test_the_last_turn_is_replayed_to_its_idempotency_key() -> None:
    talk = Talk(["fi", "rst"])
    first = await talk.say("one", key="k1")
    talk.heard.clear()
    assert await talk.say("whatever", key="k1") == first
    assert talk.heard == ["first"]
    assert (await talk.say("two", key="k2"))["turn"] == 2
    assert (await talk.say("three", key="k1"))["turn"] == 3
    assert (await talk.say("four"))["turn"] == 4
    assert (await talk.say("five"))["turn"] == 5


async def test_history_is_cut_in_front_of_a_prompt_and_a_long_turn_is_kept_whole() -> None:
    talk = Talk(["a"], ["b"], CALL, CALL, ["c"], history_messages=4)
    for prompt in ("one", "two", "three", "four", "five"):
        await talk.say(prompt)
    long_turn = ["three", *["counting (word_count)", "=success"] * 2, "c"]
    assert talk.model.calls[-2] == [*long_turn, "four"]
    assert talk.model.calls[-1] == ["four", "ok", "five"]


async def test_text_at_the_edges_is_kept_as_it_is() -> None:
    talk = Talk(["\ud83d", "\ude00 \ud800é"])
    assert (await talk.say("🙂"))["reply"] == "\ufffd\ufffd \ufffdé"
    await talk.say("two")
    assert talk.model.calls[-1][0] == "🙂"
