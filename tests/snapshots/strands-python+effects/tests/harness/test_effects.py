"""Effects happen once: after the commit, or in the turn with a recorded result."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import click
import pytest
from client import Client, Response, run
from script import Fail, Reply, ToolCall, Wait
from strands import tool

from my_agent import agent
from my_agent.harness.capability import Capability
from my_agent.harness.contract import AgentError
from my_agent.harness.effects import Effect, Rejected, after_commit, commands, once
from my_agent.harness.effects.calls import TurnCalls
from my_agent.harness.effects.capability import Effects
from my_agent.harness.effects.functions import FUNCTIONS
from my_agent.harness.effects.outbox import Outbox, Outcome
from my_agent.harness.sessions.sessions import Sessions, Stage

PAY = ToolCall("pay", {"order": "7"})
PAY_AGAIN = ToolCall("pay", {"order": "7"}, id="2")
SEND = ToolCall("send", {"to": "ada"})
TICKET = ToolCall("ticket", {"title": "Lamp"}, id="2")
BROKEN = Fail(ValueError("broken"))
CLAIM_SECONDS = 30


class Receiver:
    """The calls that a receiver got, and the errors that its next calls raise."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []  # tool and key
        self.errors: list[BaseException] = []
        self.results: dict[str, str] = {}  # by key, for `reconcile`
        self.has_reconcile = True
        self.text = ""  # of the results
        self.is_ready = asyncio.Event()
        self.is_ready.set()

    def get(self, name: str, effect: Effect) -> str:
        self.calls.append((name, effect.key))
        if self.errors:
            raise self.errors.pop(0)
        self.results[effect.key] = self.text or f"{name} {len(self.calls)}"
        return self.results[effect.key]

    def count(self, name: str) -> int:
        return [tool for tool, _ in self.calls].count(name)

    async def reconcile(self, key: str) -> str | None:
        if not self.has_reconcile:
            raise LookupError("the receiver is down")
        return self.results.get(key)


@pytest.fixture(autouse=True)
def receiver() -> Iterator[Receiver]:
    """Give the agent a payment, an e-mail and a ticket."""
    receiver = Receiver()
    with patch.object(agent, "TOOLS", make_tools(receiver)), patch.dict(FUNCTIONS):
        yield receiver


def make_tools(receiver: Receiver) -> list[Any]:
    @tool
    @once(reconcile=receiver.reconcile)
    async def pay(order: str, effect: Effect) -> str:
        """Pay an order."""
        await receiver.is_ready.wait()
        return receiver.get("pay", effect)

    @tool
    @after_commit
    async def send(to: str, effect: Effect) -> str:
        """Send an e-mail."""
        return receiver.get("send", effect)

    @tool
    @after_commit
    async def ticket(title: str, effect: Effect) -> str:
        """Open a ticket."""
        return receiver.get("ticket", effect)

    return [pay, send, ticket]


def outbox_of(client: Client) -> Outbox:
    return Effects.find(client.runtime.capabilities).outbox


async def finish(client: Client) -> None:
    """Wait until all effects have run and their outcomes are saved."""
    outbox = outbox_of(client)
    async with asyncio.timeout(20):
        while tasks := [*outbox.workers.values(), *outbox.running.values()]:
            await asyncio.wait(tasks)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise TimeoutError


async def records_of(client: Client, session: str = "s") -> Any:
    async with client.runtime.sessions.open_for_work(session) as opened:
        return opened.records.get("effects", {})


def restart(client: Client, *script: Any) -> Client:
    """Return a new process with the sessions of a process that was killed."""
    return with_store(Client(*script), client.runtime.sessions.store)


def with_store(client: Client, store: Any) -> Client:
    runtime = client.runtime
    runtime.sessions = Sessions(runtime.settings, store, runtime.capabilities)
    outbox_of(client).sessions = runtime.sessions
    return client


async def leave_a_running_call(client: Client) -> None:
    """Cancel a turn while its call is running."""
    request = client.start("Do it.", session="s", key="k1")
    await until(lambda: bool(outbox_of(client).running))
    request.leave()


def later(seconds: float) -> Any:
    """Show processes a later time. The claim of a process ends after CLAIM_SECONDS."""
    now = time.time()
    return patch("time.time", lambda: now + seconds)


async def say(client: Client, text: str = "Do it.", **options: Any) -> Response:
    return await client.say(text, session="s", **options)


class Index:
    """An index of effects that keeps the added sessions."""

    def __init__(self) -> None:
        self.added: list[str] = []

    async def add(self, session_id: str, seconds: float) -> None:
        self.added.append(session_id)

    async def remove(self, session_id: str) -> None:
        """Do nothing."""


class Shared(Capability):
    """Lets other processes use the store of a client."""

    def __init__(self, client: Client) -> None:
        self.store = client.runtime.sessions.store

    def session_store(self) -> Any:
        return Delegate(self.store)


class Delegate:
    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class WithRevisions(Delegate):
    """Rejects a save after another save, as the stores of several processes do."""

    revision = 0

    async def load(self, session_id: str) -> Any:
        stored = await self.store.load(session_id)
        return stored and replace(stored, revision=str(self.revision))

    async def save(self, session_id: str, snapshot: bytes, expected: Any, saved: Any) -> str:
        if expected not in (None, str(self.revision)):
            raise AgentError("session_conflict")
        self.revision += 1
        await self.store.save(session_id, snapshot, None, saved)
        return str(self.revision)


# After the commit ------------------------------------------------------------------------------


async def test_a_scheduled_call_runs_after_the_commit_and_the_next_turn_shows_its_result(
    receiver: Receiver,
) -> None:
    client = Client(SEND, Reply("It will be sent."), Reply("It was sent."), Reply("Yes."))
    assert (await say(client)).turn == 1
    assert "Scheduled" in str(await client.runtime.sessions.store.load("s"))
    await finish(client)
    assert receiver.count("send") == 1
    assert not outbox_of(client).outcomes
    response = await say(client, headers={"Accept": "text/event-stream"})
    assert 'event: data\ndata: {"name":"effect"' in response.text
    assert '"status":"done","result":"send 1"' in response.text
    stored = str(await client.runtime.sessions.store.load("s"))
    assert "Done after the turn was saved: send 1" in stored
    assert "Scheduled" not in stored
    assert "calls" not in await records_of(client)
    await say(client)
    await finish(client)
    assert receiver.count("send") == 1


async def test_a_turn_that_waited_for_an_approval_is_in_the_index_again(receiver: Receiver) -> None:
    call: dict[str, Any] = {"key": "k", "kind": "after_commit", "tool": "send"}
    call |= {"arguments": {"to": "ada"}, "digest": "", "turn": 1, "identity": "turn 1"}
    call |= {"status": "scheduled", "at": 0}
    client = Client(Reply("Sent."))
    outbox = outbox_of(client)
    outbox.index = index = Index()
    begin = outbox.begin

    def resume(stage: Stage) -> None:
        stage.turn.kept["effects"] = {"scheduled": [call], "used": []}
        begin(stage)

    with patch.object(outbox, "begin", resume), patch.object(outbox, "watch"):
        await say(client)
    assert index.added == ["s"]
    assert receiver.calls == []


async def test_a_failed_turn_schedules_nothing(receiver: Receiver) -> None:
    client = Client(SEND, Fail(ValueError("broken")))
    assert (await say(client)).error == "model_failed"
    await finish(client)
    assert receiver.calls == []


async def test_calls_run_in_order_and_a_failed_call_is_retried(receiver: Receiver) -> None:
    receiver.errors = [OSError("down"), OSError("down")]
    client = Client([SEND, TICKET], Reply("Done."))
    with patch("my_agent.harness.effects.outbox.FIRST_PAUSE", 0.001):
        await say(client)
        await finish(client)
    assert [name for name, _ in receiver.calls] == ["send", "send", "send", "ticket"]
    assert len({key for _, key in receiver.calls}) == 2


async def test_a_call_that_cancels_itself_is_retried(receiver: Receiver) -> None:
    receiver.errors = [asyncio.CancelledError() for _ in range(3)]
    client = Client(SEND, Reply("Done."))
    with patch("my_agent.harness.effects.outbox.FIRST_PAUSE", 0.001):
        await say(client)
        await finish(client)
    assert receiver.count("send") == 4


async def test_an_outcome_is_saved_before_a_pause(receiver: Receiver) -> None:
    client = Client([SEND, TICKET], Reply("ok"))
    with patch.object(Outbox, "watch"):
        await say(client)
    assert await outbox_of(client).step("s") == 0
    receiver.errors = [OSError("down")]
    assert await outbox_of(client).step("s")
    other = outbox_of(restart(client))
    with later(CLAIM_SECONDS):
        while await other.step("s") is not None:
            pass
    assert [name for name, _ in receiver.calls] == ["send", "ticket", "ticket"]


async def test_the_retry_period_starts_at_the_first_try(receiver: Receiver) -> None:
    receiver.errors = [OSError("down")] * 5
    client = Client(SEND, Reply("ok"))
    with patch.object(Outbox, "watch"):
        await say(client)
    now = time.time()
    other = restart(client)

    async def status_after(seconds: int, process: Client) -> str:
        with patch("time.time", lambda: now + seconds):
            while await outbox_of(process).step("s") == 0:
                pass
        [call] = (await records_of(client))["calls"]
        return str(call["status"])

    assert await status_after(86_400, client) == "scheduled"
    assert await status_after(88_000, other) == "scheduled"
    assert await status_after(90_001, other) == "failed"
    # A person begins the time again.
    await commands.settle_call(outbox_of(other), ["s"], receiver.calls[0][1], "retry", "")
    assert await status_after(90_002, other) == "scheduled"
    assert await status_after(93_603, client) == "failed"
    assert receiver.count("send") == 5


@pytest.mark.parametrize(
    ("error", "reason"),
    [(Rejected("No such address."), "No such address."), (OSError(), "OSError")],
)
async def test_a_final_failure_is_shown_to_the_model(
    receiver: Receiver, error: Exception, reason: str
) -> None:
    receiver.errors = [error]
    client = Client(SEND, Reply("ok"), Reply("ok"), effect_retry_seconds=0)
    await say(client)
    await finish(client)
    await say(client)
    stored = str(await client.runtime.sessions.store.load("s"))
    assert f"This failed after the turn was saved, and is not retried: {reason}" in stored
    assert receiver.count("send") == 1


@pytest.mark.parametrize("late", [Outcome("scheduled", tried=1), Outcome("removed", owner="other")])
async def test_a_late_outcome_does_not_undo_a_final_outcome(
    receiver: Receiver, late: Outcome
) -> None:
    receiver.errors = [Rejected("No such address.")]
    client = Client(SEND, Reply("ok"))
    await say(client)
    await finish(client)
    outbox = outbox_of(client)
    outbox.outcomes["s"][receiver.calls[0][1]] = late
    await outbox.save("s")
    assert [call["status"] for call in (await records_of(client))["calls"]] == ["failed"]


async def test_another_process_continues_when_the_claim_has_ended(receiver: Receiver) -> None:
    client = Client(SEND, Reply("ok"))
    with patch.object(Outbox, "watch"):  # the process ends right after the commit
        await say(client)
    other = restart(client, Reply("ok"))
    with later(CLAIM_SECONDS):
        await say(other)
        await finish(other)
    assert receiver.count("send") == 1


async def test_a_process_that_renews_its_claim_keeps_its_calls(receiver: Receiver) -> None:
    client = Client(SEND, Reply("ok"))
    with patch.object(Outbox, "watch"):
        await say(client)
    other = outbox_of(restart(client))
    save = other.save

    async def save_later(session_id: str) -> None:
        assert await outbox_of(client).step(session_id) == 0  # renews the claim
        await save(session_id)

    with later(CLAIM_SECONDS), patch.object(other, "save", save_later):
        assert await other.step("s") == 0
        assert await other.step("s")
    assert receiver.calls == []


async def test_a_process_leaves_the_calls_that_another_process_has_claimed(
    receiver: Receiver,
) -> None:
    client = Client(SEND, Reply("ok"))
    with patch.object(Outbox, "watch"):
        await say(client)
    other = restart(client, Reply("ok"))
    pause = await outbox_of(other).step("s")
    assert pause is not None
    assert pause > 0
    assert receiver.calls == []


async def test_a_server_leaves_the_calls_that_a_command_has_claimed(receiver: Receiver) -> None:
    client = Client(SEND, Reply("ok"))
    with patch.object(Outbox, "watch"):
        await say(client)
    await outbox_of(client).close(0)  # the claim of the process ends
    server = outbox_of(restart(client))

    async def use(outbox: Outbox, _: Any) -> None:
        assert await outbox.step("s") == 0
        assert await server.step("s")

    command = Effects.find(Client().runtime.capabilities)
    await commands.use_store(use, command, [Shared(client)], ["s"])
    assert receiver.calls == []


async def test_a_fork_and_a_replaced_turn_have_no_effects(receiver: Receiver) -> None:
    client = Client(SEND, Reply("ok"), Reply("ok"), Reply("ok"))
    with patch.object(Outbox, "watch"):
        await say(client)
        await client.post({"fork": "copy", "at_turn": 1}, session="s")
        await say(client, replace_turn=1)
    for session in ("s", "copy"):
        outbox_of(client).watch(session)
    await finish(client)
    assert receiver.calls == []


async def test_a_call_waits_for_its_function(receiver: Receiver) -> None:
    client = Client(SEND, Reply("ok"))
    with patch.object(Outbox, "watch"):
        await say(client)
    function = FUNCTIONS.pop("send")
    assert await outbox_of(client).step("s")
    assert [call["status"] for call in (await records_of(client))["calls"]] == ["scheduled"]
    FUNCTIONS["send"] = function
    assert await outbox_of(client).step("s") == 0
    assert receiver.count("send") == 1


async def test_the_end_of_the_process_finishes_running_calls(receiver: Receiver) -> None:
    client = Client(SEND, Reply("ok"))
    await say(client)
    await outbox_of(client).close(30)
    assert receiver.count("send") == 1
    [call] = (await records_of(client))["calls"]
    assert call["status"] == "done"
    assert call["arguments"] == {}


# In the turn -----------------------------------------------------------------------------------


async def test_a_repeated_turn_gets_the_recorded_result(receiver: Receiver) -> None:
    client = Client(PAY, BROKEN, PAY, Reply("Paid."))
    assert (await say(client, key="k")).error == "model_failed"
    assert (await say(client, key="k")).turn == 1
    assert receiver.count("pay") == 1
    assert client.model.requests[-1][-1] == "tool result"
    assert "pay 1" in str(await client.runtime.sessions.store.load("s"))


async def test_a_call_adds_two_saves_to_its_turn(receiver: Receiver) -> None:
    client = Client(Reply("ok"), PAY, Reply("ok"))
    store = client.runtime.sessions.store
    with patch.object(store, "save", wraps=store.save) as save:
        await say(client)
        assert save.call_count == 1
        await say(client)
        assert save.call_count == 4


async def test_two_calls_of_a_turn_are_two_effects(receiver: Receiver) -> None:
    client = Client([PAY, PAY_AGAIN], PAY, Reply("ok"))
    assert (await say(client)).turn == 1
    assert receiver.count("pay") == 3
    assert len({key for _, key in receiver.calls}) == 3


async def test_a_cancelled_turn_finishes_its_call(receiver: Receiver) -> None:
    wait = Wait(asyncio.Event())
    client = Client(PAY, [wait, Reply("ok")], PAY, Reply("ok"))
    request = client.start("Do it.", session="s", key="k")
    await wait.reached.wait()
    request.leave()
    await finish(client)
    assert (await say(client, key="k")).turn == 1
    assert receiver.count("pay") == 1


async def test_a_call_does_not_run_after_the_end_of_its_turn(receiver: Receiver) -> None:
    wait = Wait(asyncio.Event())
    client = Client([wait, Reply("ok")])
    request = client.start("Do it.", session="s")
    await wait.reached.wait()
    outbox = outbox_of(client)
    calls = TurnCalls(outbox, outbox.stages["s"])
    wait.event.set()
    assert (await request.response()).turn == 1
    with pytest.raises(RuntimeError, match="pay did not run: its turn has ended"):
        await calls.run_once(FUNCTIONS["pay"], '{"order":"7"}')
    await finish(client)
    assert receiver.calls == []
    assert "calls" not in await records_of(client)


@pytest.mark.parametrize("error", [OSError("reset"), asyncio.CancelledError()])
async def test_an_error_is_reconciled(receiver: Receiver, error: BaseException) -> None:
    receiver.errors = [error]  # the receiver got nothing
    client = Client(PAY, PAY, Reply("ok"))
    assert (await say(client)).turn == 1
    assert receiver.count("pay") == 2


@pytest.mark.parametrize("error", [OSError("reset"), Rejected("No money.")])
async def test_a_repeated_turn_gets_the_result_of_a_call_after_a_call_without_effect(
    receiver: Receiver, error: Exception
) -> None:
    receiver.errors = [error]
    client = Client(PAY, PAY, BROKEN, PAY, Reply("ok"))
    assert (await say(client, key="k")).error == "model_failed"
    assert receiver.count("pay") == 2
    assert (await say(client, key="k")).turn == 1
    assert receiver.count("pay") == 2
    # A receiver that is late does not accept the same key again. A rejection may be final.
    assert len({key for _, key in receiver.calls}) == (2 if isinstance(error, Rejected) else 1)


async def test_an_unknown_outcome_is_refused_until_a_person_settles_it(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.errors = [OSError("reset")]
    receiver.has_reconcile = False
    client = Client(PAY, PAY, Reply("ok"), PAY, Reply("ok"), PAY, Reply("ok"))
    await say(client)
    await say(client)
    assert receiver.count("pay") == 1
    [(_, key)] = receiver.calls
    assert f"A person must settle effect {key}" in str(
        await client.runtime.sessions.store.load("s")
    )
    assert f"effect {key} of pay: its outcome is unknown" in caplog.text
    outbox_of(client).outcomes["s"][key] = Outcome("removed")
    await outbox_of(client).save("s")
    await say(client)
    assert receiver.count("pay") == 2


@pytest.mark.parametrize("first", [Reply("Unknown."), BROKEN])
@pytest.mark.parametrize("is_paid", [False, True])
async def test_a_repeated_turn_gets_the_outcome_of_an_adopted_call(
    receiver: Receiver, first: Reply | Fail, *, is_paid: bool
) -> None:
    receiver.errors = [OSError("reset")]
    receiver.has_reconcile = False
    client = Client(PAY, first, PAY, BROKEN, PAY, Reply("ok"), PAY)
    await say(client, key="k1")
    [(_, key)] = receiver.calls
    receiver.has_reconcile = True
    if is_paid:
        receiver.results[key] = "paid"
    payments = 1 if is_paid else 2
    assert (await say(client, key="k2")).error == "model_failed"
    assert (await say(client, key="k2")).turn
    assert receiver.calls == [("pay", key)] * payments
    await say(client, key="k3")
    assert receiver.count("pay") == payments + 1
    assert receiver.calls[-1] != ("pay", key)


async def test_a_replaced_turn_gets_the_outcome_of_an_adopted_call(receiver: Receiver) -> None:
    receiver.errors = [OSError("reset")]
    receiver.has_reconcile = False
    client = Client(PAY, Reply("Unknown."), PAY, Reply("ok"), PAY, Reply("ok"))
    await say(client)
    receiver.has_reconcile = True
    receiver.results[receiver.calls[0][1]] = "paid"
    await say(client)
    assert (await say(client, replace_turn=2)).turn == 2
    assert receiver.count("pay") == 1


async def test_a_repeated_turn_gets_the_outcome_of_a_call_that_an_earlier_turn_left(
    receiver: Receiver,
) -> None:
    receiver.is_ready.clear()
    client = Client(PAY, PAY, BROKEN, PAY, Reply("ok"))
    await leave_a_running_call(client)
    request = client.start("Do it.", session="s", key="k2")
    await until(lambda: bool(outbox_of(client).adopted))
    receiver.is_ready.set()
    assert (await request.response()).error == "model_failed"
    assert (await say(client, key="k2")).turn == 1
    assert receiver.count("pay") == 1


async def test_only_one_of_two_calls_gets_the_outcome_of_a_call_that_an_earlier_turn_left(
    receiver: Receiver,
) -> None:
    receiver.is_ready.clear()
    client = Client(PAY, [PAY, PAY_AGAIN], Reply("ok"))
    await leave_a_running_call(client)
    request = client.start("Do it.", session="s", key="k2")
    await until(lambda: len(outbox_of(client).running) == 2)
    receiver.is_ready.set()
    assert (await request.response()).turn == 1
    assert receiver.count("pay") == 2


async def test_the_next_identical_call_gets_the_outcome_of_a_call_in_another_process(
    receiver: Receiver,
) -> None:
    receiver.is_ready.clear()
    client = Client(PAY)
    await leave_a_running_call(client)
    other = restart(client, PAY, Reply("Later."), PAY, Reply("ok"))
    await say(other, key="k2")
    assert "may still be running" in str(await other.runtime.sessions.store.load("s"))
    receiver.is_ready.set()
    await finish(client)
    await say(other, key="k3")
    assert receiver.count("pay") == 1


async def test_a_turn_gets_the_decision_of_a_person_during_the_turn(receiver: Receiver) -> None:
    receiver.errors = [OSError("reset")]
    receiver.has_reconcile = False
    wait = Wait(asyncio.Event())
    client = Client(PAY, PAY, [wait, PAY], Reply("ok"))
    request = client.start("Do it.", session="s")
    await wait.reached.wait()
    [(_, key)] = receiver.calls
    outbox_of(client).outcomes["s"][key] = Outcome("done", "By hand.", wanted=True)
    wait.event.set()
    assert (await request.response()).turn == 1
    assert receiver.count("pay") == 1
    assert "By hand." in str(await client.runtime.sessions.store.load("s"))


@pytest.mark.parametrize("is_done", [False, True])
async def test_two_processes_with_the_same_turn_make_a_call_once(
    receiver: Receiver, *, is_done: bool
) -> None:
    last = Wait(asyncio.Event())
    client = Client(pay(1), Reply("ok"), PAY, [last, Reply("ok")])
    with_store(client, WithRevisions(client.runtime.sessions.store))
    await say(client)
    wait = Wait(asyncio.Event())
    other = restart(client, [wait, PAY], BROKEN)
    request = other.start("Do it.", session="s", key="k")
    await wait.reached.wait()
    first = client.start("Do it.", session="s", key="k")
    if is_done:
        await last.reached.wait()
    else:
        receiver.is_ready.clear()
        await until(lambda: bool(outbox_of(client).running))
    wait.event.set()
    await until(lambda: len(other.model.requests) == 2)
    receiver.is_ready.set()
    last.event.set()
    assert (await first.response()).turn == 2
    await request.response()
    assert receiver.count("pay") == 2


async def test_a_late_outcome_does_not_change_the_start_of_another_process(
    receiver: Receiver,
) -> None:
    client = Client(pay(1), Reply("ok"), PAY, BROKEN)
    await say(client)
    store = client.runtime.sessions.store
    failure = AgentError("store_unavailable")
    with patch.object(store, "save", side_effect=failure), patch.object(Outbox, "watch"):
        await say(client, key="k")
    assert receiver.count("pay") == 1
    receiver.is_ready.clear()
    other = restart(client, PAY, BROKEN, PAY, Reply("ok"))
    request = other.start("Do it.", session="s", key="k")
    await until(lambda: bool(outbox_of(other).running))
    outbox = outbox_of(client)
    [key] = outbox.outcomes["s"]
    for late in (outbox.outcomes["s"][key], Outcome("unknown", owner=outbox.id)):
        outbox.outcomes["s"][key] = late
        await outbox.save("s")
        assert (await records_of(client))["calls"][-1]["status"] == "started"
    assert not outbox.is_busy
    receiver.is_ready.set()
    assert (await request.response()).error == "model_failed"
    assert (await say(other, key="k")).turn == 2
    assert receiver.count("pay") == 2


@pytest.mark.parametrize("first", [Reply("Unknown."), BROKEN])
@pytest.mark.parametrize(
    ("decision", "text"), [("done", "By hand."), ("drop", "must not run"), ("retry", "pay 2")]
)
async def test_the_next_identical_call_gets_the_decision_of_a_person_once(
    receiver: Receiver, decision: str, text: str, first: Reply | Fail
) -> None:
    receiver.errors = [OSError("reset")]
    receiver.has_reconcile = False
    client = Client(PAY, first, PAY, BROKEN, PAY, Reply("ok"), PAY)
    await say(client, key="k1")
    [(_, key)] = receiver.calls
    outbox = outbox_of(client)
    await commands.settle_call(outbox, ["s"], key, decision, "By hand.")
    outbox.outcomes["s"][key] = Outcome("unknown", owner=outbox.id)  # too late
    await say(client, key="k2")
    await say(client, key="k2")
    count = receiver.count("pay")
    assert count == (2 if decision == "retry" else 1)
    assert text in str(await client.runtime.sessions.store.load("s"))
    await say(client, key="k3")
    assert receiver.count("pay") == count + 1


async def test_a_killed_process_leaves_a_call_to_reconcile(receiver: Receiver) -> None:
    client = Client(PAY, BROKEN, PAY, Reply("ok"))
    with patch.object(Outbox, "_run_started", stop):  # killed before the call ran
        await say(client, key="k")
    other = restart(client, PAY, Reply("Later."), PAY, Reply("ok"))
    await say(other, key="k1")
    assert "may still be running" in str(await other.runtime.sessions.store.load("s"))
    assert receiver.calls == []
    with later(CLAIM_SECONDS):
        await say(other, key="k")
    assert receiver.count("pay") == 1


async def stop(*_: Any) -> None:
    raise OSError


async def test_the_limits_refuse_a_call_and_drop_old_results(receiver: Receiver) -> None:
    client = Client(
        PAY, Reply("ok"), PAY, Reply("ok"), [SEND, TICKET, PAY], Reply("ok"), max_effects=2
    )
    for _ in range(2):
        await say(client)
    with patch.object(Outbox, "watch"):
        await say(client)
    calls = (await records_of(client))["calls"]
    assert [call["tool"] for call in calls if call["status"] == "scheduled"] == ["send", "ticket"]
    assert "pay did not run" in str(await client.runtime.sessions.store.load("s"))


async def test_a_large_result_is_not_recorded_and_a_repeated_turn_has_no_second_effect(
    receiver: Receiver,
) -> None:
    receiver.text = "large " * 100
    client = Client(PAY, BROKEN, PAY, Reply("ok"), max_effect_bytes=1000)
    assert (await say(client, key="k")).error == "model_failed"
    assert "large large" not in str(await client.runtime.sessions.store.load("s"))
    assert (await say(client, key="k")).turn == 1
    assert receiver.count("pay") == 1
    assert "too large to be recorded" in str(await client.runtime.sessions.store.load("s"))


async def test_a_model_gets_a_large_result(receiver: Receiver) -> None:
    receiver.text = "large " * 100
    client = Client(PAY, Reply("ok"), max_effect_bytes=1000)
    await say(client)
    assert receiver.text in str(await client.runtime.sessions.store.load("s"))


async def test_a_long_reason_is_cut(receiver: Receiver) -> None:
    receiver.errors = [Rejected("no " * 1000)]
    client = Client(SEND, Reply("ok"))
    await say(client)
    await finish(client)
    [call] = (await records_of(client))["calls"]
    assert len(call["result"]) == 1000


async def test_a_turn_keeps_its_results_at_the_limits(receiver: Receiver) -> None:
    first, second, third = map(pay, range(3))
    client = Client(first, second, BROKEN, third, first, second, Reply("ok"), max_effects=2)
    await say(client, key="k")
    assert (await say(client, key="k")).turn == 1
    assert receiver.count("pay") == 2
    assert "pay did not run" in str(await client.runtime.sessions.store.load("s"))


async def test_an_outcome_for_a_later_call_stays_at_the_limits(receiver: Receiver) -> None:
    receiver.errors = [OSError("reset")]
    receiver.has_reconcile = False
    turns: list[Any] = [PAY, Reply("Unknown."), pay(1), Reply("ok"), pay(2), Reply("ok")]
    client = Client(*turns, PAY, pay(3), pay(4), BROKEN, PAY, Reply("ok"), max_effects=2)
    await say(client, key="k1")
    await commands.settle_call(outbox_of(client), ["s"], receiver.calls[0][1], "done", "By hand.")
    for key in ("k2", "k3", "k4"):
        await say(client, key=key)
    assert receiver.count("pay") == 4
    assert (await say(client, key="k4")).turn == 4
    assert receiver.count("pay") == 4
    assert "By hand." in str(await client.runtime.sessions.store.load("s"))


async def test_an_outcome_drops_no_result_at_the_limits(receiver: Receiver) -> None:
    receiver.text = "x" * 20
    sends = [ToolCall("send", {"to": "ada"}, id=str(number)) for number in range(3)]
    client = Client(sends, Reply("ok"), PAY, BROKEN, PAY, Reply("ok"), max_effect_bytes=100)
    with patch.object(Outbox, "watch"):
        await say(client)
    await say(client, key="k")
    await finish(client)
    assert (await say(client, key="k")).turn == 2
    assert receiver.count("send") == 3
    assert receiver.count("pay") == 1
    assert "did not run" not in str(await client.runtime.sessions.store.load("s"))


def pay(order: int) -> ToolCall:
    return ToolCall("pay", {"order": str(order)})


async def test_a_session_keeps_the_id_of_its_effects(receiver: Receiver) -> None:
    receiver.errors = [Rejected("No money."), Rejected("No money.")]
    client = Client(PAY, BROKEN, PAY, Reply("ok"))
    await say(client, key="k")
    assert "calls" not in await records_of(client)
    await say(client, key="k")
    assert len(receiver.calls) == 2
    assert len({key for _, key in receiver.calls}) == 1


# Mistakes --------------------------------------------------------------------------------------


def test_a_function_that_is_not_async_is_refused() -> None:
    def refund(order: str) -> str:
        return order

    with pytest.raises(click.ClickException, match="refund is not async"):
        after_commit(refund)  # type: ignore[arg-type]


async def test_arguments_that_are_not_json_do_not_run(receiver: Receiver) -> None:
    @tool
    @after_commit
    async def weigh(kilos: float) -> str:
        """Weigh."""
        return str(kilos)

    agent.TOOLS.append(weigh)
    client = Client(ToolCall("weigh", '{"kilos": "NaN"}'), Reply("ok"))
    await say(client)
    assert "cannot be saved as JSON" in str(await client.runtime.sessions.store.load("s"))
    assert await records_of(client) == {}


async def test_logs_and_check_show_no_arguments(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.errors = [OSError("secret")]
    client = Client(ToolCall("send", {"to": "secret"}), Reply("ok"), effect_retry_seconds=0)
    await say(client)
    await finish(client)
    assert "effect send" in caplog.text
    assert "secret" not in caplog.text


def test_check_warns_without_a_session_store() -> None:
    assert "a restart loses open effects" in run("check").output
