"""A turn is a transaction: it is committed whole, or it leaves no trace."""

import asyncio
import json
import re
from contextlib import suppress
from typing import Any
from unittest.mock import AsyncMock

import pytest
from conftest import ScriptedModel
from starlette.datastructures import Headers

from app.agent import SYSTEM_PROMPT
from app.parts import Parts
from app.server import Turns, create_app
from app.settings import Settings

PREFIX = "X-Amzn-Bedrock-AgentCore-Runtime-"
SESSION, ACTOR, KEY = PREFIX + "Session-Id", PREFIX + "Custom-Actor-Id", "Idempotency-Key"
POST, JSON = "POST /invocations", {"Host": "127.0.0.1:8080", "Accept": "application/json"}
CALL = ["counting", ("call",)]
FAILURES = {
    "fails": (["half", ValueError("secret")], "model_failed"),
    "is cut": (["half", ("cut",)], "model_failed"),
    "says nothing": ([], "empty_reply"),
    "says only white space": ([" \n\u2003\ufeff"], "empty_reply"),
    "is cut by its length": (["half", ("length",)], "reply_incomplete"),
    "is filtered": (["half", ("filter",)], "reply_incomplete"),
    "calls tools for ever": (CALL, "reply_incomplete"),
    "takes too long": (["half", 3], "turn_timeout"),
}
# What each session@actor#key comes to: a turn's number, an error, or ended with !; ~ is a pause.
CONVERSATIONS = {
    "a session is its own turns": "a=1 b=1 a=2 =1 =1",
    "a session is its first actor's": "s@a=1 s@a=2 s@b=session_forbidden s=session_forbidden s@a=3",
    "nobody is an actor too": "s=1 s@a=session_forbidden s@a!=session_forbidden s!=ended s@a=1",
    "the key of the last turn repeats it": "s=1 s=2 s#k=3 s#k=3 s#l=4 s#k=5 s=6 s#k=7",
    "a key needs a session, and so does its end": "#k=invalid_request !=invalid_request s!=ended",
    "the least recently used session is forgotten": "a=1 b=1 a=2 c=1 a=3 b=1",
    "an idle session is forgotten": "s#k=1 ~ s#k=1 ~ s=2 ~ ~ s=1",
}


class Client:
    """A client of a server whose model plays a script."""

    def __init__(self, *script: Any, **settings: Any) -> None:
        self.parts, self.turns = Parts(Settings(**settings)), Turns()
        self.parts.model = self.model = ScriptedModel(script)
        self.app = create_app(self.parts, self.turns)

    async def send(self, route: str, headers: Any, body: bytes, patience: float = 5) -> Any:
        """The status, session and text of the answer; the client leaves when out of patience."""
        method, path = route.split()
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": path, "headers": raw}
        came, left = {"type": "http.request", "body": body}, {"type": "http.disconnect"}
        inputs: Any = iter([(0, came), (patience, left), (patience, left)])
        outputs = AsyncMock()
        with suppress(Exception):
            await self.app(scope, lambda: asyncio.sleep(*next(inputs)), outputs)
        start, *parts = [call.args[0] for call in outputs.await_args_list]
        text = b"".join(part["body"] for part in parts).decode()
        return start["status"], Headers(raw=start["headers"]).get(SESSION), text

    async def say(self, address: str, prompt: str = "hi", patience: float = 5) -> str:
        """What a turn in session@actor#key comes to, or the end of that session if a ! follows."""
        names = {"": SESSION, "@": ACTOR, "#": KEY}
        values = {names[mark]: value for mark, value in re.findall(r"([@#]?)(\w+)", address)}
        body = json.dumps({"end_session": True} if "!" in address else {"prompt": prompt})
        answer = json.loads((await self.send(POST, JSON | values, body.encode(), patience))[2])
        error = answer.get("error", {"type": "ended"})
        return str(answer.get("turn", error["type"]))


@pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS)
async def test_in_a_conversation(conversation: str) -> None:
    client = Client(session_capacity=2, session_idle_seconds=1)
    for step in conversation.split():
        address, _, outcome = step.partition("=")
        await asyncio.sleep(0.6 if step == "~" else 0)
        assert step == "~" or await client.say(address) == outcome


@pytest.mark.parametrize("prelude", [[], [CALL]], ids=["", "after a tool call"])
@pytest.mark.parametrize(("step", "error"), FAILURES.values(), ids=FAILURES)
async def test_no_trace_is_left_when_the_model(step: Any, error: str, prelude: Any) -> None:
    client = Client(*prelude, step, step, step, max_steps=3, turn_timeout_seconds=1)
    assert await client.say("s#k", "1") == error
    client.model.script = []
    assert [await client.say("s@a#k", "2"), await client.say("s@a", "3")] == ["1", "2"]
    assert client.model.calls[-1] == "2 ok 3"


async def test_turns_of_a_session_run_one_by_one_and_a_full_queue_refuses() -> None:
    client = Client(["half", 3], ["ok"], [0.2, "ok"], session_queue=2, turn_timeout_seconds=1)
    turns = [asyncio.create_task(client.say("s", n, 0.2 if n == "3" else 5)) for n in "1234"]
    await asyncio.sleep(0.1)
    assert await client.say("other") == "1"
    assert await turns[0] == "turn_timeout"
    turns += [asyncio.create_task(client.say("s", n)) for n in "567"]
    outcomes = ["turn_timeout", "1", "draining", "session_busy", "2", "3", "session_busy"]
    assert await asyncio.gather(*turns) == outcomes
    assert client.model.calls[2:] == ["2", "2 ok 5", "2 ok 5 ok 6"]
    assert not client.parts.sessions._locks


async def test_history_is_cut_in_front_of_a_prompt_and_a_long_turn_is_kept_whole() -> None:
    client = Client(["a"], ["b"], CALL, CALL, ["c"], history_messages=4)
    for prompt in "12345":
        await client.say("s", prompt)
    long_turn = "3 counting (toolUse) (toolResult) counting (toolUse) (toolResult) c"
    assert client.model.calls[2] == "1 a 2 b 3"
    assert client.model.calls[-2:] == [f"{long_turn} 4", "4 ok 5"]
    stored = await client.parts.sessions._store.load("s") or b""
    assert b"4" in stored and SYSTEM_PROMPT.encode() not in stored
