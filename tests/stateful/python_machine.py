"""Random schedules of turns through a Python render's own `turn`, with the real framework.

Runs in the environment of an installed render, beside its tests: see `test_stateful.py`.
After every step a session holds exactly the turns that were reported as committed, in order.
"""

import asyncio
import json
import os
from typing import Any

from app.capabilities import Settings
from app.contract import AgentError, Turn
from app.runtime import Runtime
from app.session_store import InProcess, Stored
from app.sessions import Sessions
from app.turn import take_turn
from cachetools import TTLCache
from conftest import ScriptedModel
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

CAPACITY, IDLE_SECONDS = 3, 100
SESSIONS = st.sampled_from("abcd")
TOOL = ["count", ("call",)]
GOOD: list[list[list[Any]]] = [
    [["ok"]],
    [["o", "k"]],
    [TOOL, ["ok"]],
    [TOOL, TOOL, ["ok"]],
    [[("call",)], ["ok"]],
]
BROKEN: dict[str, list[Any]] = {
    "fail before": [ValueError("no")],
    "fail mid": ["half", ValueError("no")],
    "empty": [],
    "blank": [" \n"],
    "length": ["half", ("length",)],
    "filter": ["half", ("filter",)],
    "cut": ["half", ("cut",)],
}
# The same, and each of them after a tool was called.
BAD = [[step] for step in BROKEN.values()] + [[TOOL, step] for step in BROKEN.values()]


class Plans:
    """The script of a ScriptedModel, by the prompt that the model was just asked."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        self.plans: dict[str, list[list[Any]]] = {}

    def pop(self, _: int) -> list[Any]:
        asked = self.model.calls[-1].split()
        return self.plans[next(text for text in reversed(asked) if text in self.plans)].pop(0)


def shown(prompt: str, steps: list[list[Any]]) -> list[str]:
    """What a turn of these steps adds to what the model is asked later, word by word."""
    history = [prompt]
    for step in steps:
        history += [item for item in step if isinstance(item, str)]
        history += ["(toolUse)", "(toolResult)"] if ("call",) in step else []
    return history


class Schedules(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now, self.count = 0.0, 0
        self.may_forget = True  # whether a session may be forgotten while turns run
        self.runner = asyncio.Runner()
        config = Settings(session_queue=20, session_capacity=CAPACITY, history_messages=100_000)
        self.runtime = Runtime(config)
        self.store = InProcess(config)
        self.entries: TTLCache[str, Stored] = self.store._entries
        TTLCache.__init__(self.entries, 2**30, IDLE_SECONDS, timer=lambda: self.now)
        self.runtime.sessions = Sessions(config, self.store)
        self.runtime.model = self.model = ScriptedModel([])
        self.plans = self.model.script = Plans(self.model)
        self.committed: dict[str, list[str]] = {}  # session -> history, of sessions still kept

    def teardown(self) -> None:
        self.runner.close()

    async def take(self, session: str, steps: list[list[Any]], cancel: str = "") -> None:
        """One turn, cancelled at once or at its first chunk; what it reports is believed."""
        self.count += 1
        prompt = f"prompt{self.count}"
        self.plans.plans[prompt] = [list(step) for step in steps]
        heard = asyncio.Event()

        async def hear(_: str) -> None:
            heard.set()

        turn = asyncio.create_task(take_turn(self.runtime, Turn(session, None, None, prompt, hear)))
        try:
            if cancel:
                await (heard.wait() if cancel == "mid" else asyncio.sleep(0))
                turn.cancel()
            reported = await turn
        except (AgentError, asyncio.CancelledError):
            return
        before = self.committed.get(session, [])
        if reported["turn"] == 1 and self.may_forget:
            before = []  # it was forgotten before this turn began
        self.committed[session] = [*before, *shown(prompt, steps)]
        assert len(prompts(self.committed[session])) == reported["turn"]

    def run(self, *turns: Any) -> None:
        async def all_of_them() -> None:
            await asyncio.gather(*turns)

        self.runner.run(all_of_them())
        self.forget()

    def forget(self) -> None:
        self.entries.expire()
        self.committed = {s: h for s, h in self.committed.items() if s in self.entries}

    @rule(session=SESSIONS, steps=st.sampled_from(GOOD))
    def turn(self, session: str, steps: list[list[Any]]) -> None:
        before = self.committed.get(session, [])
        self.run(self.take(session, steps))
        prompt = f"prompt{self.count}"
        assert self.committed[session] == [*before, *shown(prompt, steps)]
        assert self.model.calls[-len(steps)].split() == [*before, prompt]

    @rule(session=SESSIONS, steps=st.sampled_from(BAD))
    def failed_turn(self, session: str, steps: list[list[Any]]) -> None:
        before = dict(self.committed)
        self.run(self.take(session, steps))
        assert self.committed == before

    @rule(session=SESSIONS, tool=st.booleans(), when=st.sampled_from(["mid", "at once"]))
    def cancelled_turn(self, session: str, tool: bool, when: str) -> None:
        before = dict(self.committed)
        self.run(self.take(session, [*([TOOL] if tool else []), ["half", 60]], cancel=when))
        assert self.committed == before

    @rule(turns=st.lists(st.tuples(SESSIONS, st.sampled_from(GOOD + BAD)), min_size=2, max_size=6))
    def concurrent_turns(self, turns: list[tuple[str, list[list[Any]]]]) -> None:
        sessions = {session for session, _ in turns} | set(self.committed)
        self.may_forget = len(sessions) > CAPACITY
        self.run(*(self.take(session, steps) for session, steps in turns))
        self.may_forget = True

    @rule(sessions=st.lists(SESSIONS, min_size=4, max_size=4, unique=True))
    def evict(self, sessions: list[str]) -> None:
        for session in sessions:
            self.run(self.take(session, GOOD[0]))
        assert sorted(self.committed) == sorted(sessions[-CAPACITY:])

    @rule(seconds=st.sampled_from([60.0, 101.0]))
    def expire(self, seconds: float) -> None:
        self.now += seconds
        self.forget()
        if seconds > IDLE_SECONDS:
            assert not self.committed

    @invariant()
    def sessions_are_the_committed_turns(self) -> None:
        assert len(self.entries) <= CAPACITY
        assert not self.runtime.sessions._locks
        assert not self.runtime.sessions._turns
        assert set(self.committed) == set(self.entries)
        for session in self.committed:
            stored = json.loads(self.entries[session].snapshot)
            said = prompts(self.committed[session])
            assert stored["app_data"]["turn"] == len(said)
            check_messages(stored["data"]["messages"], said)


def prompts(history: list[str]) -> list[str]:
    """Those words of a history that were prompts."""
    return [word for word in history if word.startswith("prompt")]


def check_messages(messages: list[dict[str, Any]], said: list[str]) -> None:
    """Every turn begins with its prompt and ends in text, and every tool call has its result."""
    blocks = [
        (message["role"], *read(block))
        for message in messages
        for block in message.get("content") or message["parts"]
    ]
    assert [block[2] for block in blocks if block[:2] == ("user", "text")] == said
    waiting: list[str] = []
    for before, (role, kind, value) in zip([blocks[-1], *blocks], blocks, strict=False):
        if kind == "call":
            waiting.append(value)
        elif kind == "result":
            waiting.remove(value)
        else:
            assert not waiting
            assert role == "assistant" or before[:2] == ("assistant", "text")
    assert not waiting


def read(block: dict[str, Any]) -> tuple[str, str]:
    """A block of a message as Strands or the AI SDK stores it: its kind, and its text or id."""
    if call := block.get("toolUse") or (block.get("kind") == "tool_call" and block):
        return "call", call.get("toolUseId") or call["tool_call_id"]
    if result := block.get("toolResult") or (block.get("kind") == "tool_result" and block):
        return "result", result.get("toolUseId") or result["tool_call_id"]
    return "text", block["text"]


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(
    max_examples=int(os.environ.get("SCHEDULES", "50")),
    stateful_step_count=6,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)
