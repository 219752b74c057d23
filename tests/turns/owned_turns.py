"""What an owner's code does with turns; pytest runs this inside a render."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import owned_tools as module
import pytest
from client import EVENTS, Client
from my_agent.harness import (
    AgentError,
    Capability,
    Data,
    Runtime,
    Source,
    Turn,
    TurnRequest,
    TurnResult,
    current_turn,
)
from my_agent.harness import runtime as runtime_module
from my_agent.harness.contract import Change, value_of
from my_agent.harness.enabled import Settings
from pydantic import BaseModel
from script import Fail, Reply, ToolCall, Wait

pytest_plugins = ["owned_tools"]  # its fixtures


class Ticket(BaseModel):
    """A ticket."""

    title: str
    urgent: bool = False


class Observer(Capability):
    """Notes the outcomes that its hooks see, and what `before` raises."""

    def __init__(self) -> None:
        super().__init__(Settings(), [], lambda: None)  # type: ignore[arg-type,return-value]
        self.seen = list[str]()
        self.options = dict[str, Any]()

    @asynccontextmanager
    async def around(self, turn: Turn) -> AsyncIterator[None]:
        self.seen.append(f"before {turn.outcome}")
        try:
            yield
        finally:
            self.seen.append(f"around {turn.outcome}")

    def prepare(self, _turn: Turn, options: dict[str, Any]) -> None:
        options.update(self.options)

    async def ended(self, turn: Turn) -> None:
        self.seen.append(f"ended {turn.outcome}")


def observed(*script: Any, **settings: Any) -> tuple[Client, Observer]:
    client = Client(*script, **settings)
    observer = Observer()
    client.runtime.capabilities = [observer, *client.runtime.capabilities]
    return client, observer


async def error_of(running: asyncio.Task[TurnResult]) -> str:
    with pytest.raises(AgentError) as caught:
        await running
    return caught.value.type


async def test_a_turn_runs_without_a_client() -> None:
    client = Client(Reply("One, ", "two."), Reply("Three."))
    chunks = list[Any]()

    async def emit(chunk: Any) -> None:
        chunks.append(chunk)

    result = await client.runtime.spawn(TurnRequest("s", "Count.", key="k"), emit=emit)
    assert (result.session_id, result.turn, result.reply) == ("s", 1, "One, two.")
    assert (result.outcome, result.waiting, chunks) == ("committed", [], ["One, ", "two."])
    again = await client.runtime.spawn(TurnRequest("s", "Count.", key="k"))
    assert (again.turn, again.reply, again.outcome) == (1, "One, two.", "replayed")
    assert (await client.say("Go on.", session="s")).turn == 2


async def test_the_limits_of_turns_apply_to_spawned_ones(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    go = asyncio.Event()
    wait = Wait(go)
    client = Client([Reply("One"), wait], max_turns=1, max_prompt_chars=10)
    running = client.runtime.spawn(TurnRequest("s", "Hello."))
    await wait.reached.wait()
    with pytest.raises(AgentError, match="Too many turns are running"):
        client.runtime.spawn(TurnRequest("t", "Hello."))
    assert (await client.say(session="t")).error == "server_busy"
    go.set()
    assert (await running).turn == 1
    for bad in (" ", "far too long"):
        with pytest.raises(AgentError, match="at most 10 characters"):
            client.runtime.spawn(TurnRequest("s", bad))
    assert "session s: turn=1 outcome=committed" in caplog.text


@pytest.mark.parametrize(
    ("fields", "type"),
    [
        ({"session_id": "../s"}, "invalid_session_id"),
        ({"actor": "a b"}, "invalid_actor"),
        ({"key": "\n"}, "invalid_request"),
    ],
)
def test_a_request_is_checked_when_it_is_made(fields: dict[str, str], type: str) -> None:
    with pytest.raises(AgentError) as caught:
        TurnRequest(**{"session_id": "s", "prompt": "Hello.", **fields})  # type: ignore[arg-type]
    assert caught.value.type == type


async def test_a_spawned_turn_waits_for_the_one_before_it() -> None:
    go = asyncio.Event()
    wait = Wait(go)
    client = Client([wait, Reply("First.")], Reply("Second."))
    first = client.start(session="s")
    await wait.reached.wait()
    second = client.runtime.spawn(TurnRequest("s", "Hello."))
    await asyncio.sleep(0)
    go.set()
    assert ((await second).turn, (await first.response()).turn) == (2, 1)


async def test_the_end_of_the_process_ends_a_spawned_turn() -> None:
    wait = Wait(asyncio.Event())
    client, observer = observed([wait])
    running = client.runtime.spawn(TurnRequest("s", "Hello."))
    await wait.reached.wait()
    await client.runtime.turns.drain(0.01)
    assert await error_of(running) == "draining"
    assert observer.seen == ["before running", "around draining", "ended draining"]
    with pytest.raises(AgentError, match="shutting down"):
        client.runtime.spawn(TurnRequest("s", "Hello."))


async def test_to_cancel_the_task_cancels_the_turn() -> None:
    wait = Wait(asyncio.Event())
    client, observer = observed([Reply("Half"), wait], Reply("ok"))
    running = client.runtime.spawn(TurnRequest("s", "Hello."))
    await wait.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert observer.seen == ["before running", "around cancelled", "ended cancelled"]
    assert (await client.say(session="s")).turn == 1


class IgnoredCancellation(Wait):
    """A model whose client loses the cancellation of its turn."""

    async def wait(self) -> None:
        with suppress(asyncio.CancelledError):
            await super().wait()


class OwnCancellation(Wait):
    """A model whose client raises CancelledError itself."""

    async def wait(self) -> None:
        raise asyncio.CancelledError


async def test_a_cancelled_turn_ends_even_if_the_client_of_the_model_ignores_it() -> None:
    wait = IgnoredCancellation(asyncio.Event())
    client, _ = observed([Reply("Half"), wait, Reply("more")], Reply("ok"))
    running = client.runtime.spawn(TurnRequest("s", "Hello."))
    await wait.reached.wait()
    await asyncio.sleep(0.05)
    running.cancel()
    assert (await asyncio.wait({running}, timeout=10))[0]
    assert (await client.say(session="s")).status == 200


async def test_a_turn_ends_if_the_client_of_the_model_cancels_itself() -> None:
    client, _ = observed([Reply("Half"), OwnCancellation(asyncio.Event())], Reply("ok"))
    running = client.runtime.spawn(TurnRequest("s", "Hello."))
    assert (await asyncio.wait({running}, timeout=10))[0]
    assert await error_of(running) in {"model_failed", "internal_error"}
    assert (await client.say(session="s")).turn == 1


async def test_hooks_see_the_outcome_of_each_turn() -> None:
    client, observer = observed(Reply("ok"), Fail(ValueError("no")))
    await client.say(session="s", key="k")
    await client.say(session="s", key="k")
    await client.say(session="s")
    outcomes = ["committed", "replayed", "model_failed"]
    expected = [(f"around {one}", f"ended {one}") for one in outcomes]
    assert observer.seen == [
        text for pair in expected for text in ("before running", pair[0], pair[1])
    ]


@pytest.mark.usefixtures("agent")
async def test_a_tool_sends_data_and_sources() -> None:
    client = Client(ToolCall("research", {}), Reply("Done."))
    text = (await client.say(session="s", headers=EVENTS)).text
    data = 'event: data\ndata: {"name":"progress","value":{"pages":1}}\n\n'
    source = 'event: source\ndata: {"url":"https://example.com/1","title":"One"}\n\n'
    assert text.index(data) < text.index(source) < text.index("Done.") < text.index("event: done")
    session = await client.runtime.sessions.read("s", None)
    assert "example.com" not in str(session.data)


@pytest.mark.usefixtures("agent")
async def test_a_generator_tool_shows_its_progress() -> None:
    client = Client(ToolCall("generate", {}), Reply("Done."))
    chunks = list[Any]()

    async def emit(chunk: Any) -> None:
        chunks.append(chunk)

    await client.runtime.spawn(TurnRequest("s", "Go."), emit=emit)
    values = [chunk.value for chunk in chunks if isinstance(chunk, Data)]
    assert values[:2] == [{"step": 1}, {"step": 2}]
    assert all(chunk.name == "progress" for chunk in chunks if isinstance(chunk, Data))


@pytest.mark.usefixtures("agent")
async def test_charged_tokens_count_in_the_usage_and_in_the_limits() -> None:
    client = Client(ToolCall("charge", {}), Reply("Done."), actor_tokens_per_day=5000)
    result = await client.runtime.spawn(TurnRequest("s", "Go.", actor="ada"))
    assert result.usage.input_tokens >= 4000
    assert result.usage.output_tokens >= 2000
    assert (await client.say(actor="ada")).error == "rate_limited"
    assert (await client.say(actor="bob")).error == ""


@pytest.mark.usefixtures("agent")
async def test_a_final_tool_ends_the_turn_with_its_result() -> None:
    client = Client([Reply("Well. "), ToolCall("make_refund", {"amount": 5})], Reply("Second."))
    chunks = list[Any]()

    async def emit(chunk: Any) -> None:
        chunks.append(chunk)

    result = await client.runtime.spawn(TurnRequest("s", "Refund."), emit=emit)
    assert result.reply == "Well. refunded 5"
    assert chunks[-1] == "refunded 5"
    assert (await client.say("And now?", session="s")).turn == 2
    assert client.model.requests[-1][-2:] == ["assistant: refunded 5", "user: And now?"]


@pytest.mark.usefixtures("agent")
async def test_a_final_tool_that_fails_does_not_end_the_turn() -> None:
    client = Client(ToolCall("make_refund", {"amount": -1}), Reply("It failed."))
    assert (await client.say(session="s")).reply == "It failed."


@pytest.mark.usefixtures("agent")
async def test_the_first_of_several_final_calls_ends_the_turn() -> None:
    calls = [ToolCall("make_refund", {"amount": amount}, id=str(amount)) for amount in (1, 2)]
    client = Client(calls, Reply("Second."))
    assert (await client.say(session="s")).reply == "refunded 1"


@pytest.mark.usefixtures("agent")
async def test_a_final_tool_does_not_end_a_turn_that_needs_a_value(value_script: Any) -> None:
    refund = ToolCall("make_refund", {"amount": 5})
    client = Client(refund, *value_script({"title": "Refunded"}))
    result = await client.runtime.spawn(TurnRequest("s", "Refund.", output=Ticket))
    assert result.output == Ticket(title="Refunded")
    assert json.loads(result.reply)["title"] == "Refunded"


async def test_a_turn_ends_in_a_value(value_script: Any) -> None:
    client = Client(*value_script({"title": "Broken", "urgent": True}), Reply("Next."))
    request = TurnRequest("s", "It is broken.", key="k", output=Ticket)
    result = await client.runtime.spawn(request)
    assert result.output == Ticket(title="Broken", urgent=True)
    assert json.loads(result.reply) == {"title": "Broken", "urgent": True}
    replayed = await client.runtime.spawn(request)
    assert (replayed.outcome, replayed.output) == ("replayed", result.output)
    assert (await client.say("And now?", session="s")).turn == 2
    roles = [line.partition(":")[0] for line in client.model.requests[-1]]
    assert roles[0] == "user"
    assert client.model.requests[-1][-2] == f"assistant: {result.reply}"


async def test_a_turn_without_the_value_fails() -> None:
    client = Client(Reply("No."), Reply("No."), Reply("ok"))
    running = client.runtime.spawn(TurnRequest("s", "It is broken.", output=Ticket))
    assert await error_of(running) in {"reply_incomplete", "model_failed"}
    assert (await client.say(session="s")).turn == 1


async def test_an_option_that_is_not_honoured_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    client, observer = observed(Reply("ok"))
    observer.options = {"structured_output_model": Ticket}
    response = await client.say(session="s")
    assert (response.status, response.error) == (500, "internal_error")
    assert "`prepare` cannot set the option structured_output_model: " in caplog.text


async def test_a_capability_spawns_turns_with_the_runtime_that_opens_it() -> None:
    client, observer = observed(Reply("ok"))
    results = list[TurnResult]()

    async def open(runtime: Runtime) -> None:
        results.append(await runtime.spawn(TurnRequest("job", "Work.")))

    observer.open = open  # type: ignore[method-assign]
    await client.runtime.open()
    await client.runtime.close()
    assert [result.reply for result in results] == ["ok"]


async def test_the_wrapping_of_the_first_capability_is_outermost() -> None:
    order = list[str]()

    class Wrapper(Observer):
        def wrap_model(self, model: Any, *_: Any) -> Any:
            order.append(type(self).__name__)
            return model

    class Refuser(Wrapper):
        def wrap_model(self, model: Any, *given: Any) -> Any:
            super().wrap_model(model, *given)
            raise AgentError("session_forbidden")

    client = Client(Reply("ok"))
    client.runtime.capabilities = [Refuser(), Wrapper()]
    assert (await client.say(session="s")).error == "session_forbidden"
    assert order == ["Wrapper", "Refuser"]


def test_data_is_json_with_a_name() -> None:
    for name, value in (("a b", 1), ("", 1), ("progress", object())):
        with pytest.raises(ValueError, match="Data"):
            Data(name, value)  # type: ignore[arg-type]
    cycle = list[Any]()
    cycle.append(cycle)
    for value in (float("nan"), cycle, {"when": asyncio}):
        with pytest.raises(ValueError, match="must be JSON"):
            Data("progress", value)  # type: ignore[arg-type]
    pages = [1]
    data = Data("progress", {"pages": pages})
    pages.append(2)
    assert data.value == {"pages": [1]}
    assert Data("progress", None).value is None
    assert Source("https://example.com").title == ""


async def test_the_chunks_of_a_turn_that_is_over_are_dropped() -> None:
    client, observer = observed(Reply("ok"))
    turns = list[Turn]()

    async def ended(turn: Turn) -> None:
        turns.append(turn)

    observer.ended = ended  # type: ignore[method-assign]
    assert (await client.say(session="s")).turn == 1
    await turns[0].emit(Data("late", 1))
    with pytest.raises(LookupError):
        current_turn()


async def test_an_emit_that_fails_fails_the_turn_and_leaves_the_session_unchanged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client(Reply("One"), Reply("Two"))

    async def emit(_: Any) -> None:
        raise OSError("disk full")

    running = client.runtime.spawn(TurnRequest("s", "Hello."), emit=emit)
    assert await error_of(running) == "internal_error"
    assert "detail=emit failed: OSError" in caplog.text
    assert (await client.say(session="s")).turn == 1


async def test_a_cancellation_after_the_commit_does_not_undo_the_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    client, observer = observed(Reply("One"), Reply("Two"))
    reached, finished = asyncio.Event(), asyncio.Event()

    async def ended(_: Turn) -> None:
        reached.set()
        await asyncio.sleep(0.05)
        finished.set()

    observer.ended = ended  # type: ignore[method-assign]
    running = client.runtime.spawn(TurnRequest("s", "Hello."))
    await reached.wait()
    running.cancel()
    result = await running
    assert (result.outcome, finished.is_set()) == ("committed", True)
    assert "session s: turn=1 outcome=committed" in caplog.text
    assert (await client.say(session="s")).turn == 2


async def test_a_hook_that_hangs_after_the_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "ENDED_SECONDS", 0.01)
    client, observer = observed(Reply("One"))

    async def ended(_: Turn) -> None:
        await asyncio.Event().wait()

    observer.ended = ended  # type: ignore[method-assign]
    assert (await client.say(session="s")).turn == 1


@pytest.mark.parametrize("tokens", [-1, 1.5, float("nan"), True])
def test_a_charge_is_a_whole_number_of_tokens(tokens: Any) -> None:
    turn = Turn(TurnRequest("s", "Hello."))
    with pytest.raises(ValueError, match="a whole number of tokens"):
        turn.charge(input_tokens=tokens)
    assert turn.usage.input_tokens == 0


async def test_sessions_are_listed_for_an_actor_and_have_valid_ids() -> None:
    client = Client(Reply("One"))
    sessions = client.runtime.sessions
    await client.say(session="s", actor="ada")
    assert [info.session_id for info in await sessions.list("ada")] == ["s"]
    with pytest.raises(AgentError) as caught:
        await sessions.list(None)
    assert caught.value.type == "actor_required"
    for running in (sessions.turns("../s", "ada"), sessions.end("../s", "ada")):
        with pytest.raises(AgentError) as caught:
            await running
        assert caught.value.type == "invalid_session_id"


@pytest.mark.usefixtures("agent")
async def test_the_tools_of_a_turn_that_a_tool_spawns_have_their_own_limit() -> None:
    calls = [ToolCall("count_running", {}, id=str(number)) for number in range(4)]
    client = Client(
        ToolCall("delegate", {}), calls, Reply("inner"), Reply("outer"), max_tools_at_once=2
    )
    module.RUNTIME = client.runtime
    assert (await client.say(session="s")).reply == "outer"
    assert max(module.RUNNING_TOOLS) == 2


async def test_a_cancelled_future_of_own_code_is_an_internal_error() -> None:
    client, observer = observed(Reply("One"), Reply("Two"))

    async def ended(_: Turn) -> None:
        await cancelled()

    observer.ended = ended  # type: ignore[method-assign]
    assert (await client.say(session="s")).turn == 1

    @asynccontextmanager
    async def around(_: Turn) -> AsyncIterator[None]:
        await cancelled()
        yield

    observer.around = around  # type: ignore[assignment,method-assign]
    response = await client.say(session="s")
    assert (response.status, response.error) == (500, "internal_error")


def cancelled() -> asyncio.Future[None]:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    return future


async def test_a_close_that_awaits_its_cancelled_job_closes_the_others() -> None:
    client = Client(Reply("One"))
    closed = list[str]()

    class Job(Observer):
        closes_last = False  # type: ignore[assignment]

        async def close(self) -> None:
            closed.append("job")
            await cancelled()

    class Last(Observer):
        closes_last = True  # type: ignore[assignment]

        async def close(self) -> None:
            closed.append("last")

    client.runtime.capabilities = [Last(), Job(), Job()]
    await client.runtime.open()
    await client.runtime.close()
    assert closed == ["job", "job", "last"]


async def test_an_older_value_is_replayed_by_its_key(value_script: Any) -> None:
    client = Client(*value_script({"title": "Broken"}), Reply("Next."))
    request = TurnRequest("s", "It is broken.", key="k", output=Ticket)
    first = await client.runtime.spawn(request)
    assert (await client.say("And now?", session="s")).turn == 2
    again = await client.runtime.spawn(request)
    assert (again.outcome, again.output, again.reply) == ("replayed", first.output, first.reply)


async def test_a_fork_is_saved_now() -> None:
    client = Client(Reply("One"), Reply("Two"))
    sessions = client.runtime.sessions
    await client.say(session="a", actor="ada")
    await asyncio.sleep(0.01)
    await client.say(session="b", actor="ada")
    await asyncio.sleep(0.01)
    await sessions.fork(Change("a", "ada", "c", 1))
    assert [info.session_id for info in await sessions.list("ada")] == ["c", "b", "a"]


def test_deep_json_of_a_tool_is_a_text() -> None:
    assert value_of("[" * 100_000) is None
