"""Random schedules of turns through a Python render's own modules, with the real framework.

Runs in a copy of an installed render, beside its tests: see `machines.py`. Two runtimes share a
store. After every save, what is stored is what a model of sessions says; and a tool that needs an
approval ran once if its approval was claimed, and never otherwise.
"""

import asyncio
import json
import os
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from cachetools import TTLCache
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from my_agent import agent
from my_agent.harness.approval import session as approval
from my_agent.harness.approval.session import Answers
from my_agent.harness.contract import AgentError, Change, Turn, TurnRequest, current_turn
from my_agent.harness.enabled import Settings
from my_agent.harness.runtime import Runtime
from my_agent.harness.sessions.session_store import InProcess, Stored
from my_agent.main import app
from script import Fail, Reply, Stop, ToolCall
from scripted_model import ScriptedModel

CAPACITY, IDLE_SECONDS, WAITING_SECONDS, HISTORY = 3, 100, 1000, 8
SESSIONS = st.sampled_from("abcd")
Step = list[Any]
TOOL: Step = ["count", ("call", "look_up")]
GATED: list[list[Step]] = [
    [["may", ("call", "delete_order")], ["ok"]],
    [[("call", "look_up", "delete_order")], ["ok"]],
    [
        TOOL,
        [("call", "delete_order", "delete_order")],
        TOOL,
        ["so", ("call", "delete_order")],
        ["ok"],
    ],
]
GOOD: list[list[Step]] = [[["ok"]], [["o", "k"]], [TOOL, ["ok"]], [TOOL, TOOL, ["ok"]], *GATED]
BROKEN: list[Step] = [
    [ValueError("no")],
    ["half", ValueError("no")],
    [],
    [" \n"],
    ["half", ("length",)],
    ["half", ("filter",)],
    ["half", ("cut",)],
]
# The same, and each of them after a tool was called, or approved.
BAD = [[*before, step] for step in BROKEN for before in ([], [TOOL], GATED[0][:1])]
FAULTS = [(lost, save) for lost in ("request", "reply") for save in (1, 2)]
STEPS = st.sampled_from([*GOOD * 2, *BAD])


@dataclass(frozen=True)
class Past:
    """A turn of the model of a session: its texts word by word, and what it left."""

    key: str | None
    words: tuple[str, ...]
    messages: int = 1
    reply: str = ""
    seen: str | None = None  # the order that was looked up last


@dataclass(frozen=True)
class Waiting:
    """A turn that waits after this many turns: so far, and with the calls of this step."""

    after: int
    key: str | None  # of the last request; so_far has that of the first
    so_far: Past
    calls: list[tuple[str, str]]
    rest: list[Step]
    until: float
    mark: str = ""  # of the ids of its calls

    @property
    def ids(self) -> list[str]:
        """What the calls that wait are called."""
        return [f"{id}.{self.mark}" for name, id in self.calls if name == "delete_order"]


@dataclass(frozen=True)
class History:
    """A session of the model: all its turns, of which the first are no longer held."""

    turns: tuple[Past, ...] = ()
    first: int = 0
    last: tuple[str | None, str] = (None, "")  # key and reply, unless a cut took the turn
    waiting: Waiting | None = None
    copied: int = 0  # turns that a fork copied: their keys repeat nothing

    def repeated(self, key: str, replaces: int | None) -> int:
        """The number of the turn that a request with this key repeats, or 0."""
        if key == self.last[0]:
            return len(self.turns)
        for number in range(max(self.first, self.copied) + 1, len(self.turns) + 1):
            if self.turns[number - 1].key == key and replaces in {None, number}:
                return number
        return 0

    def before(self, after: int) -> "History":
        """The session with so many turns, as the model of a turn is shown it."""
        first, turns = self.first, self.turns[:after]
        most = HISTORY if sum(past.messages for past in turns[first:]) <= HISTORY else HISTORY // 2
        while sum(past.messages for past in turns[first:]) > most and first < after - 1:
            first += 1
        return History(turns, first, copied=min(self.copied, after))


def has_turns(history: History) -> bool:
    """Whether a session has turns."""
    return bool(history.turns)


def waits(history: History) -> bool:
    """Whether a turn of a session waits."""
    return history.waiting is not None


@dataclass(eq=False)
class Operation:
    """What somebody asks for."""

    id: int
    session: str
    steps: list[Step] = field(default_factory=list)
    prompt: str = ""
    replaces: int | None = None
    reasons: dict[str, str | None] | None = None
    key: str | None = None
    actor: str | None = None
    writer: int = 0
    cancel: str = ""  # at once, or mid: at the first text
    fault: tuple[str, int] = ("", 0)  # of the request or the reply of its first or second save
    # What became of it.
    found: dict[str, History] = field(default_factory=dict)
    existing: set[str] = field(default_factory=set)  # of these sessions
    turn: Turn | None = None
    played: int = 0  # steps
    saves: int = 0
    conflicts: int = 0
    is_claimed: bool = False
    outcome: str = ""

    def expect(self, now: float) -> tuple[History, str]:
        """What it makes of the session that it found: the session, and a number or an error."""
        found = self.found[self.session]
        waiting = found.waiting if found.waiting and now < found.waiting.until else None
        if self.actor and self.session in self.existing:
            return found, "session_forbidden"
        key, after, steps = self.key, len(found.turns), self.steps
        so_far = Past(key, (self.prompt,))
        if self.reasons is not None and waiting and self.reasons.keys() == {*waiting.ids}:
            after, so_far, steps = waiting.after, waiting.so_far, waiting.rest
            so_far, key = with_results(so_far, waiting.calls), key or waiting.key
        elif key and (number := found.repeated(key, self.replaces)):
            return found, str(number)
        elif key and waiting and key in {waiting.key, waiting.so_far.key}:
            return found, "waiting"
        elif self.reasons is not None:
            return found, "not_waiting"
        elif self.replaces is not None:
            after = (self.replaces or len(found.turns)) - 1
            if not found.first <= after < len(found.turns):
                return found, "invalid_request"
            so_far = replace(so_far, words=(self.prompt or found.turns[after].words[0],))
        if self.reasons is None and after:
            so_far = replace(so_far, seen=found.turns[after - 1].seen)
        staged = found.before(after)
        for number, step in enumerate(steps):
            names = step[-1] if step and isinstance(step[-1], tuple) else ("",)
            texts = [item for item in step if isinstance(item, str)]
            if any(isinstance(item, Exception) for item in step) or names[0] == "cut":
                return found, "model_failed"
            if names[0] in {"length", "filter"}:
                return found, "reply_incomplete"
            words = (*so_far.words, *texts, *["(toolUse)"] * (len(names) - 1))
            reply, messages = so_far.reply + "".join(texts), so_far.messages + 1
            so_far = replace(so_far, words=words, reply=reply, messages=messages)
            if names[0] != "call":
                if not "".join(texts).strip():
                    return found, "empty_reply"
                turns = (*staged.turns, so_far)
                last = (key, so_far.reply)
                made = History(turns, staged.first, last, copied=staged.copied)
                return made, str(len(turns))
            if "delete_order" in names:
                rest = list(steps[number + 1 :])
                until = int(now) + WAITING_SECONDS
                waits = Waiting(after, key, so_far, self.issue(number, step), rest, until)
                return replace(found, waiting=waits), "waiting"
            so_far = with_results(so_far, self.issue(number, step))
        raise AssertionError("a script without an end")

    @property
    def approved(self) -> list[str]:
        """The calls that it approves, as the model called them."""
        reasons = self.reasons or {}
        return [id.rpartition(".")[0] for id, reason in reasons.items() if reason is None]

    @property
    def plan(self) -> list[Step]:
        """What the model does."""
        waiting = self.found[self.session].waiting
        return waiting.rest if self.reasons is not None and waiting else self.steps

    def issue(self, number: int, step: Step) -> list[tuple[str, str]]:
        """The calls of its step of this number, by name and id."""
        return [(name, f"c{self.id}x{number}x{n}") for n, name in enumerate(step[-1][1:])]


def with_results(past: Past, calls: list[tuple[str, str]]) -> Past:
    """A turn with the results of these calls."""
    seen = [id for name, id in calls if name == "look_up"] or [past.seen]
    words = (*past.words, *["(toolResult)"] * len(calls))
    return replace(past, words=words, messages=past.messages + 1, seen=seen[-1])


OPERATION: ContextVar[Operation] = ContextVar("OPERATION")


class Store(InProcess):
    """A store with revisions, which shows the machine what is loaded and saved."""

    def __init__(self, config: Settings, machine: "Schedules") -> None:
        super().__init__(config)
        self.machine, self.revisions = machine, Counter[str]()
        self.entries: TTLCache[str, Stored] = self._entries
        TTLCache.__init__(self.entries, 2**30, IDLE_SECONDS, timer=lambda: machine.now)

    async def load(self, session_id: str) -> Stored | None:
        await asyncio.sleep(0)
        stored = await super().load(session_id)
        self.machine.loaded(OPERATION.get(), session_id, stored)
        found = stored and Stored(str(self.revisions[session_id]), stored.snapshot)
        await asyncio.sleep(0)
        return found

    async def save(self, session_id: str, snapshot: bytes, expected: Any, saved: Any) -> None:
        operation = OPERATION.get()
        operation.saves += 1
        revision = str(self.revisions[session_id])
        if session_id in self.entries and expected != revision:
            operation.conflicts += 1
            raise AgentError("session_conflict")
        is_claim = not operation.is_claimed and bool(operation.approved)
        if operation.fault == ("request", operation.saves):
            raise AgentError("store_unavailable")
        self.revisions[session_id] += 1
        await super().save(session_id, snapshot, expected, saved)
        self.machine.saved(operation, session_id, json.loads(snapshot))
        # A claim of unknown outcome is taken up by its retry, which tests/conformance tries.
        if operation.fault == ("reply", operation.saves) and not is_claim:
            raise AgentError("store_unavailable")

    async def end(self, session_id: str) -> None:
        await super().end(session_id)
        self.machine.model.pop(session_id)


class Script:
    """The script of a ScriptedModel: what the operation that runs has planned."""

    def pop(self, _: int) -> list[Any]:
        operation = OPERATION.get()
        number = operation.played
        operation.played += 1
        answer: list[Any] = []
        for item in operation.plan[number]:
            if isinstance(item, Exception):
                answer.append(Fail(item))
            elif isinstance(item, str):
                answer.append(Reply(item))
            elif item[0] == "call":
                calls = operation.issue(number, operation.plan[number])
                answer += [ToolCall(name, {"order_id": id}, id) for name, id in calls]
            else:
                answer.append(Stop(item[0]))
        return answer


class Requests:
    """The `requests` of a ScriptedModel: each conversation begins with what the session held."""

    def __init__(self, machine: "Schedules") -> None:
        self.machine = machine

    def append(self, lines: list[str]) -> None:
        operation = OPERATION.get()
        found = operation.found[operation.session]
        if not operation.played and operation.reasons is None:
            after, prompt = len(found.turns), operation.prompt
            if operation.replaces is not None:
                after = (operation.replaces or after) - 1
                prompt = prompt or found.turns[after].words[0]
            staged = found.before(after)
            words = [word for past in staged.turns[staged.first :] for word in past.words]
            sent = [word_of(line) for line in lines]
            self.machine.check(sent == [*words, prompt], "told", lines, words, prompt)


def word_of(line: str) -> str:
    """Return the word of the model of sessions for a line of a request."""
    if line == "tool result":
        return "(toolResult)"
    kind, _, text = line.partition(": ")
    return "(toolUse)" if kind == "tool call" else text


def one_is(are: Any) -> Any:
    """Take a rule only where one of the sessions is like this."""
    return precondition(lambda machine: any(map(are, machine.model.values())))


class Schedules(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now, self.wall, self.count = 0.0, 1e9, 0
        self.problems: list[Any] = []
        self.model: dict[str, History] = {}
        self.latest: dict[str, Operation] = {}
        self.claims: dict[str, Operation] = {}  # by the id of a call
        self.runs = Counter[str]()
        self.runner = asyncio.Runner()
        config = Settings(
            session_queue=20,
            session_capacity=CAPACITY,
            history_messages=HISTORY,
            waiting_seconds=WAITING_SECONDS,
        )
        self.store = Store(config, self)
        modules = app.load()
        with patch.object(app.own, "OWN_CAPABILITIES", []):
            self.runtimes = [
                Runtime(config, modules, app.make_capabilities(config)) for _ in range(2)
            ]
        for runtime in self.runtimes:
            runtime.sessions.store = self.store
            runtime.model = ScriptedModel([])
            runtime.model.script, runtime.model.requests = Script(), Requests(self)
        agent.ran = self.ran
        approval.time = SimpleNamespace(time=lambda: self.wall)

    def teardown(self) -> None:
        self.runner.close()

    def check(self, is_so: bool, *what: Any) -> None:
        """Note a problem; frameworks and tasks would swallow an exception."""
        if not is_so:
            self.problems.append(what)

    def loaded(self, operation: Operation, session: str, stored: Stored | None) -> None:
        if stored is None:
            self.model.pop(session, None)  # it was evicted, or never there
        if not operation.saves:
            operation.found[session] = self.model.get(session, History())
            operation.existing |= self.model.keys() & {session}

    def saved(self, operation: Operation, session: str, snapshot: dict[str, Any]) -> None:
        """What was saved is what the model says, on top of what the operation had found."""
        found, claims = operation.found[session], operation.is_claimed
        if session in self.model and not claims:
            self.check(self.model[session] is found, "lost update", operation)
        if None in (operation.reasons or {}).values() and not claims:
            after, operation.is_claimed = replace(found, waiting=None), True
            for id in operation.approved:
                self.check(id not in self.claims, "claimed twice", operation)
                self.claims[id] = operation
        elif operation.prompt == "fork":
            source = operation.found[operation.session]
            turns = source.turns[: operation.replaces]
            self.check(session not in operation.existing, "a fork over a session", operation)
            after = History(turns, source.first, copied=len(turns))
        elif operation.prompt == "undo":
            turns = found.turns[:-1]
            after = History(turns, found.first, copied=min(found.copied, len(turns)))
        else:
            after, outcome = operation.expect(self.wall)
            self.check(after is not found, "saved", operation, outcome)
            if after.waiting and outcome == "waiting":
                mark = snapshot["app_data"]["pending"]["calls"][0]["id"].rpartition(".")[2]
                after = replace(after, waiting=replace(after.waiting, mark=mark))
        self.model[session] = after
        try:
            check_stored(snapshot, after)
        except Exception as error:
            self.problems.append((error, operation, after, snapshot))

    def ran(self, id: str) -> None:
        """A tool runs: for the first time, in its own turn, and approved if it asks for that."""
        operation = OPERATION.get()
        self.runs[id] += 1
        self.check(current_turn() is operation.turn, "another turn", operation)
        self.check(self.runs[id] == 1, "ran twice", id, operation)
        waiting = operation.found[operation.session].waiting
        if waiting and ("delete_order", id) in waiting.calls:
            self.check(self.claims.get(id) is operation, "ran without approval", id, operation)
        for number, step in enumerate(operation.plan):
            if step and isinstance(step[-1], tuple):
                gated = ("delete_order", id) in operation.issue(number, step)
                self.check(not gated, "ran without being asked for", id, operation)

    async def take(self, operation: Operation) -> None:
        """Run a turn; what it reports is what the model says of what it found."""
        OPERATION.set(operation)
        heard = asyncio.Event()

        async def hear(_: Any) -> None:
            heard.set()

        given: Any = {"actor": operation.actor, "key": operation.key}
        if operation.reasons is not None:
            request = Answers(operation.session, "", reasons=operation.reasons, **given)
        else:
            given |= {"replaces": operation.replaces}
            request = TurnRequest(operation.session, operation.prompt, **given)
        turn = Turn(request, hear)
        operation.turn = turn
        running = self.runtimes[operation.writer].start(turn)
        if operation.cancel:
            leaves = asyncio.create_task(heard.wait() if operation.cancel == "mid" else pause())
            await asyncio.wait([running, leaves], return_when=asyncio.FIRST_COMPLETED)
            leaves.cancel()
            running.cancel()
        try:
            result = await running
            operation.outcome = "waiting" if result.waiting else str(result.turn)
            dropped = operation.found[operation.session].waiting
            drops = operation.reasons is None and dropped and self.wall < dropped.until
            if turn.outcome != "replayed":
                self.check(bool(result.marks.get("dropped")) == bool(drops), "dropped", operation)
        except AgentError as error:
            operation.outcome = error.type
        except asyncio.CancelledError:
            operation.outcome = "cancelled"
        self.compare(operation)

    def compare(self, operation: Operation) -> None:
        outcome, is_hit = operation.outcome, 0 < operation.fault[1] <= operation.saves
        if outcome == "cancelled":
            self.check(operation.cancel != "", "cancelled", operation)
        elif outcome == "session_conflict":
            self.check(operation.conflicts > 0, "conflict", operation)
        elif outcome == "store_unavailable":
            self.check(is_hit, "unavailable", operation)
        else:
            expected = operation.expect(self.wall)[1]
            self.check(outcome == expected, "outcome", operation, expected)
            if operation.is_claimed:
                runs = [self.runs[id] for id in operation.approved]
                self.check(runs == [1] * len(runs), "not run", operation, runs)

    def run(self, *works: Any) -> None:
        async def all_of_them() -> None:
            await asyncio.gather(*works)

        self.runner.run(all_of_them())
        self.forget()

    def forget(self) -> None:
        self.store.entries.expire()
        self.model = {s: h for s, h in self.model.items() if s in self.store.entries}

    def operation(self, session: str, **what: Any) -> Operation:
        self.count += 1
        return Operation(self.count, session, **what)

    def asks(self, session: str, steps: list[Step], **what: Any) -> Operation:
        """A turn with a key of its own."""
        asked = self.operation(session, steps=steps, key=f"k{self.count}", **what)
        asked.prompt = asked.prompt or f"prompt{asked.id}"
        self.latest[session] = asked
        return asked

    def one_of(self, session: str, are: Any) -> str:
        """A session like this, if there is any; which one it is depends on what is given."""
        found = sorted(name for name, history in self.model.items() if are(history))
        return found[ord(session) % len(found)] if found else session

    def answers(self, session: str, verdicts: list[bool], **what: Any) -> Operation:
        """Answers to the calls that wait, approved or denied in turn."""
        waiting = self.model.get(session, History()).waiting
        ids = waiting.ids if waiting else ["none.0"]
        reasons = {id: None if verdicts[n] else "no" for n, id in enumerate(ids)}
        answers = self.operation(session, reasons=reasons, **what)
        if verdicts[-1]:
            answers.key = f"k{answers.id}"
            self.latest[session] = answers
        return answers

    @rule(
        session=SESSIONS,
        writer=st.integers(0, 1),
        steps=STEPS,
        cancel=st.sampled_from(["", "", "", "", "mid", "at once"]),
        fault=st.sampled_from([("", 0)] * 4 + [("request", 1), ("reply", 1)]),
        actor=st.sampled_from([None, None, None, None, "other"]),
    )
    def turn(self, session: str, steps: list[Step], actor: str | None, **what: Any) -> None:
        if actor and session not in self.model:
            actor = None
        self.run(self.take(self.asks(session, steps, actor=actor, **what)))

    @one_is(has_turns)
    @rule(
        session=SESSIONS,
        writer=st.integers(0, 1),
        steps=STEPS,
        number=st.integers(0, 5),
        repeats=st.booleans(),
    )
    def replace(self, session: str, number: int, repeats: bool, **what: Any) -> None:
        session = self.one_of(session, has_turns)
        held = self.model.get(session, History())
        if number and number < 5 and held.turns:  # else the last, or one that is not there
            number = held.first + 1 + number % (len(held.turns) - held.first or 1)
        asked = self.asks(session, replaces=number, **what)
        if repeats and number:
            asked.prompt = ""
        self.run(self.take(asked))

    @one_is(has_turns)
    @rule(session=SESSIONS, writer=st.integers(0, 1))
    def again(self, session: str, writer: int) -> None:
        if before := self.latest.get(session):
            kept = {
                name: getattr(before, name) for name in ("prompt", "replaces", "reasons", "key")
            }
            self.run(self.take(self.operation(session, steps=[["ok"]], writer=writer, **kept)))

    @one_is(waits)
    @rule(
        session=SESSIONS,
        writer=st.integers(0, 1),
        verdicts=st.lists(st.booleans(), min_size=3, max_size=3),
        actor=st.sampled_from([None, None, None, "other"]),
        wrong=st.sampled_from(["", "", "", "fewer", "more"]),
        cancel=st.sampled_from(["", "", "", "", "mid", "at once"]),
        fault=st.sampled_from(
            [("", 0)] * 4 + [(w, n) for w in ("request", "reply") for n in (1, 2)]
        ),
    )
    def answer(
        self, session: str, verdicts: list[bool], actor: str | None, wrong: str, **what: Any
    ) -> None:
        session = self.one_of(session, waits)
        actor = actor if session in self.model else None
        asked = self.answers(session, verdicts, actor=actor, **what)
        reasons = asked.reasons or {}
        if wrong == "fewer":
            reasons.popitem()
        elif wrong:
            reasons["none"] = None
        self.run(self.take(asked))

    @rule(
        session=SESSIONS,
        asked=st.lists(
            st.tuples(
                st.sampled_from(["turn", "replace", "answer", "elsewhere"]),
                st.integers(0, 1),
                STEPS,
                st.lists(st.booleans(), min_size=3, max_size=3),
                st.sampled_from(["", "", "", "", "mid", "at once"]),
            ),
            min_size=2,
            max_size=5,
        ),
    )
    def at_once(self, session: str, asked: list[Any]) -> None:
        works, session = [], self.one_of(session, waits)
        for kind, writer, steps, verdicts, cancel in asked:
            if kind == "answer":
                work = self.answers(session, verdicts, writer=writer, cancel=cancel)
            else:
                where = "abcd"["dabc".index(session)] if kind == "elsewhere" else session
                replaces = 1 if kind == "replace" else None
                work = self.asks(where, steps, writer=writer, cancel=cancel, replaces=replaces)
            works.append(self.take(work))
        self.run(*works)

    @one_is(has_turns)
    @rule(session=SESSIONS, to=SESSIONS, number=st.integers(1, 5), writer=st.integers(0, 1))
    def fork(self, session: str, to: str, number: int, writer: int) -> None:
        session = self.one_of(session, has_turns)
        operation = self.operation(session, prompt="fork", replaces=number, writer=writer)
        before, held = dict(self.model), self.model.get(session, History())

        async def fork() -> None:
            OPERATION.set(operation)
            try:
                await self.runtimes[writer].sessions.fork(Change(session, None, to, number))
            except AgentError as error:
                operation.outcome = error.type

        self.run(fork())
        if not held.first < number <= len(held.turns):
            expected = "invalid_request"
        else:
            expected = "session_conflict" if to in before else ""
        self.check(operation.outcome == expected, "fork", operation, expected, before)

    @one_is(has_turns)
    @rule(session=SESSIONS, writer=st.integers(0, 1))
    def undo(self, session: str, writer: int) -> None:
        operation = self.operation(session, prompt="undo")
        before = self.model.get(session, History())

        async def undo() -> None:
            OPERATION.set(operation)
            try:
                async with self.runtimes[writer].sessions.open(session, None) as opened:
                    operation.outcome = str(await opened.take_back())
            except AgentError as error:
                operation.outcome = error.type

        self.run(undo())
        number = len(before.turns)
        expected = str(number) if before.first < number else "invalid_request"
        self.check(operation.outcome == expected, "undo", operation, expected)

    @rule(seconds=st.sampled_from([60.0, 101.0]))
    def expire(self, seconds: float) -> None:
        self.now += seconds
        self.forget()
        self.check(seconds < IDLE_SECONDS or not self.model, "not expired")

    @one_is(waits)
    @rule(seconds=st.sampled_from([WAITING_SECONDS - 1, WAITING_SECONDS]))
    def outwait(self, seconds: int) -> None:
        self.wall += seconds

    @invariant()
    def sessions_are_what_the_model_says(self) -> None:
        assert not self.problems
        assert len(self.store.entries) <= CAPACITY
        for runtime in self.runtimes:
            assert not runtime.sessions._locks
            assert not runtime.sessions._turns
        assert set(self.model) == set(self.store.entries)
        for session, history in self.model.items():
            check_stored(json.loads(self.store.entries[session].snapshot), history)


async def pause() -> None:
    await asyncio.sleep(0)


def check_stored(snapshot: dict[str, Any], history: History) -> None:
    """A snapshot has the held turns, word by word and from where they begin, and what waits."""
    kept, data, held = snapshot["app_data"], snapshot["data"], history.turns[history.first :]
    assert (kept["turn"], kept["key"], kept["reply"]) == (len(history.turns), *history.last)
    starts = [turn["at"] for turn in kept["turns"]]
    assert [turn["key"] for turn in kept["turns"]] == [past.key for past in held]
    words = [
        words_of(data["messages"][a:b]) for a, b in zip(starts, [*starts[1:], None], strict=False)
    ]
    assert words == [list(past.words) for past in held]
    assert starts[:1] == [0][: len(held)]
    assert held or data["messages"] == []
    if "state" in data and held:
        assert data["state"].get("seen") == history.turns[-1].seen
    waiting, pending = history.waiting, kept.get("pending")
    assert (waiting is None) == (pending is None)
    if waiting and pending:
        asked = [(call["tool"], call["id"]) for call in pending["calls"]]
        assert asked == [("delete_order", id) for id in waiting.ids]
        so_far = waiting.so_far
        told = (pending["turn"], pending["prompt"], pending["reply"])
        assert told == (waiting.after + 1, so_far.words[0], so_far.reply)
        assert (pending["key"], pending["prompt_key"]) == (waiting.key, so_far.key)
        assert pending["until"] == waiting.until


def words_of(messages: list[dict[str, Any]]) -> list[str]:
    """The words of a turn: a prompt of the user, then the model's, and each call has its result."""
    words: list[str] = []
    waiting: list[str] = []
    for message in messages:
        for block in message.get("content") or message["parts"]:
            kind, value = read(block)
            words.append(f"({kind})" if kind else value)
            if kind == "toolUse":
                waiting.append(value)
            elif kind:
                waiting.remove(value)
            else:
                assert not waiting
                assert message["role"] == ("user" if len(words) == 1 else "assistant")
    assert not waiting
    return words


def read(block: dict[str, Any]) -> tuple[str, str]:
    """A block of a message as Strands or the AI SDK stores it: its kind, and its text or id."""
    if call := block.get("toolUse") or (block.get("kind") == "tool_call" and block):
        return "toolUse", call.get("toolUseId") or call["tool_call_id"]
    if result := block.get("toolResult") or (block.get("kind") == "tool_result" and block):
        return "toolResult", result.get("toolUseId") or result["tool_call_id"]
    return "", block["text"]


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(
    max_examples=int(os.environ.get("SCHEDULES", "50")),
    phases=[Phase.generate] if "FIRST_FAILURE" in os.environ else list(Phase),
    stateful_step_count=int(os.environ.get("STEPS", "20")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)
