"""A turn is a transaction: it is committed whole, or it leaves no trace."""

import asyncio
import re
from typing import Any

import pytest
from app.agent import SYSTEM_PROMPT
from app.contract import AgentError, Ask
from app.parts import Parts
from app.settings import Settings
from app.turn import take_turn
from conftest import ScriptedModel

CALL: list[Any] = ["counting", {"word_count": {"text": "a b"}}]
FAILURES = {
    "fails": (["half", ValueError("secret")], "model_failed"),
    "is cut": (["half", ("cut",)], "model_failed"),
    "says nothing": ([], "empty_reply"),
    "says only white space": ([" \n\u2003\ufeff"], "empty_reply"),
    "is cut by its length": (["half", ("length",)], "reply_incomplete"),
    "is filtered": (["half", ("filter",)], "reply_incomplete"),
    "calls tools for ever": (CALL, "reply_incomplete"),
    "hangs": (["half", None], "turn_timeout"),
}
# Each turn is session@actor#key=outcome, where the outcome is its number or the error; ~ is a rest.
CONVERSATIONS = {
    "sessions are apart": "a=1 b=1 a=2",
    "a session belongs to the actor of its first turn": "s@ann=1 s@bob=session_forbidden "
    "s=session_forbidden s@ann=2 t=1 t@ann=session_forbidden",
    "the key of the last turn replays it": "s=1 s=2 s#k=3 s#k=3 s#l=4 s#k=5 s=6 s#k=7",
    "the least recently used session is forgotten": "a=1 b=1 a=2 c=1 a=3 b=1",
    "an idle session is forgotten": "s#k=1 ~ s#k=1 ~ s=2 ~ ~ s=1",
}


class Talk:
    """Conversations with one scripted model; `recorded` counts what memory heard."""

    def __init__(self, *script: list[Any], **settings: Any) -> None:
        self.parts, self.recorded = Parts(Settings(**settings)), list[int]()
        self.parts.model = self.model = ScriptedModel(script)
        self.parts.record = lambda _, new: self.recorded.append(len(new))  # type: ignore[method-assign]

    async def say(self, address: str, prompt: str = "hi") -> str:
        """The number of the committed turn in session@actor#key, or the error."""
        id, actor, key = re.fullmatch(r"(\w+)(?:@(\w+))?(?:#(\w+))?", address).groups()
        heard: list[str] = []

        async def hear(chunk: str) -> None:
            heard.append(chunk)

        try:
            async with asyncio.timeout(5):
                last = await take_turn(self.parts, Ask(id, actor, key, prompt), hear)
        except AgentError as error:
            return error.type
        assert "".join(heard) == last["reply"] != ""
        return str(last["turn"])


@pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS)
async def test_it_holds_that(conversation: str) -> None:
    talk = Talk(session_capacity=2, session_idle_seconds=1)
    for turn in conversation.split():
        address, _, outcome = turn.partition("=")
        await asyncio.sleep(0.6) if turn == "~" else None
        assert turn == "~" or await talk.say(address) == outcome


@pytest.mark.parametrize("prelude", [[], [CALL]], ids=["", "after a tool call"])
@pytest.mark.parametrize(("step", "error"), FAILURES.values(), ids=FAILURES)
async def test_no_trace_is_left_when_the_model(
    step: Any, error: str, prelude: Any, caplog: pytest.LogCaptureFixture
) -> None:
    talk = Talk(*prelude, step, step, step, max_steps=3, turn_timeout_seconds=1)
    assert await talk.say("s#k", "one") == error
    talk.model.script = []
    assert [await talk.say("s@ann#k", "two"), await talk.say("s@ann", "three")] == ["1", "2"]
    assert (talk.model.calls[-1], talk.recorded) == ("two ok three", [2, 2])
    assert "secret" not in caplog.text


async def test_turns_of_a_session_run_one_by_one_and_a_full_queue_refuses() -> None:
    gate = asyncio.Event()
    talk = Talk(["half", None], [gate, "ok"], session_queue=2, turn_timeout_seconds=0.5)
    first, second, third, fourth = [asyncio.create_task(talk.say("s", n)) for n in "1234"]
    await asyncio.sleep(0.1)
    assert [await fourth, await talk.say("another")] == ["session_busy", "1"]
    third.cancel()
    assert await first == "turn_timeout"
    later = [asyncio.create_task(talk.say("s", n)) for n in "567"]
    await asyncio.sleep(0.1)
    gate.set()
    outcomes = [await turn for turn in (second, *later)]
    assert outcomes == ["1", "2", "3", "session_busy"]
    assert talk.model.calls[2:] == ["2", "2 ok 5", "2 ok 5 ok 6"]
    assert not talk.parts.sessions._locks


async def test_history_is_cut_in_front_of_a_prompt_and_a_long_turn_is_kept_whole() -> None:
    talk = Talk(["a"], ["b"], CALL, CALL, ["c"], history_messages=4)
    for prompt in "12345":
        await talk.say("s", prompt)
    long_turn = "3 counting (toolUse) (toolResult) counting (toolUse) (toolResult) c"
    assert talk.model.calls[2] == "1 a 2 b 3"
    assert talk.model.calls[-2:] == [f"{long_turn} 4", "4 ok 5"]
    assert talk.recorded == [2, 2, 6, 2, 2]
    async with talk.parts.sessions.open(Ask("s", None, None, "6")) as session:
        assert SYSTEM_PROMPT not in str(session.snapshot)
