"""Tool calls wait for an approval, and the turn continues with the answers."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from client import Client, Response, app
from gate import ask_for_approval, lift_gate
from script import Reply, ToolCall

from my_agent.harness.approval.capability import Approval
from my_agent.harness.approval.session import Answers
from my_agent.harness.contract import AgentError, TurnRequest, TurnResult
from my_agent.harness.contract import ToolCall as ToolUse
from my_agent.harness.enabled import Settings

COUNT = ToolCall("word_count", {"text": "a b"})


@pytest.fixture(autouse=True)
def approvals() -> Iterator[None]:
    """Let word_count ask for an approval."""
    with ask_for_approval():
        yield


async def wait_for_approval(client: Client) -> str:
    """Run a turn that waits for an approval, and return the id of its call."""
    waiting = await client.say("Count.", session="s")
    [call] = waiting.body["waiting"]
    assert call["tool"] == "word_count"
    return str(call["id"])


async def approve(client: Client, id: str, **fields: object) -> Response:
    return await client.post({"approve": [id], **fields}, session="s")


async def deny(client: Client, id: str, reason: str) -> Response:
    return await client.post({"deny": [{"id": id, "reason": reason}]}, session="s")


async def test_an_approved_call_runs_and_its_turn_is_committed() -> None:
    client = Client([Reply("Well. "), COUNT], Reply("Done."))
    id = await wait_for_approval(client)
    response = await approve(client, id)
    assert response.turn == 1
    assert response.reply == "Well. Done."
    assert client.model.requests[-1] == [
        "user: Count.",
        "assistant: Well. ",
        "tool call: word_count",
        "tool result",
    ]


async def test_an_approval_of_an_unknown_call_is_refused() -> None:
    client = Client(COUNT)
    id = await wait_for_approval(client)
    response = await approve(client, "other")
    assert response.error == "not_waiting"
    assert id in response.body["error"]["message"]
    assert len(client.model.requests) == 1


async def test_a_call_is_approved_only_once() -> None:
    client = Client(COUNT, Reply("Done."))
    id = await wait_for_approval(client)
    await approve(client, id)
    assert (await approve(client, id)).error == "not_waiting"
    assert len(client.model.requests) == 2


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_call_stays_pending_if_its_turn_fails_before_it_runs(leaves: bool) -> None:
    client = Client(COUNT, Reply("Done."))
    id = await wait_for_approval(client)
    store: Any = client.runtime.sessions.store
    save = store.save
    load = store.load

    async def fail_to_load(_: str) -> None:
        store.load = load
        if leaves:
            turn.cancel()
            await asyncio.sleep(0)
        raise AgentError("session_conflict")

    async def save_and_fail(*values: Any) -> Any:
        store.save = save
        store.load = fail_to_load
        return await save(*values)

    store.save = save_and_fail
    turn = client.runtime.spawn(Answers("s", "", reasons={id: None}))
    with pytest.raises(asyncio.CancelledError if leaves else AgentError):
        await turn
    assert len(client.model.requests) == 1
    assert (await approve(client, id)).reply == "Done."
    assert (await approve(client, id)).error == "not_waiting"


@pytest.mark.parametrize(
    "fields",
    [
        {"end_session": True},
        {"fork": "copy", "at_turn": 1},
        {"at_turn": 1},
        {"prompt": "More"},
    ],
    ids=str,
)
async def test_an_approval_cannot_have_other_fields(fields: dict[str, object]) -> None:
    client = Client(COUNT, Reply("Done."))
    id = await wait_for_approval(client)
    assert (await approve(client, id, **fields)).error == "invalid_request"
    assert (await approve(client, id)).reply == "Done."


async def test_a_denied_call_does_not_run_and_the_model_gets_the_reason() -> None:
    client = Client(COUNT, Reply("No."))
    id = await wait_for_approval(client)
    response = await deny(client, id, "Not today.")
    assert response.reply == "No."
    assert "Not today." in str(await client.runtime.sessions.store.load("s"))


async def test_a_denied_call_does_not_run_if_its_gate_was_lifted() -> None:
    client = Client(COUNT, Reply("No."))
    id = await wait_for_approval(client)
    with lift_gate():
        response = await deny(client, id, "Not today.")
    assert response.reply == "No."
    assert "Not today." in str(await client.runtime.sessions.store.load("s"))


async def test_a_new_prompt_drops_the_pending_turn() -> None:
    client = Client(COUNT, Reply("No."), COUNT, Reply("ok"))
    await deny(client, await wait_for_approval(client), "Not today.")
    await wait_for_approval(client)
    response = await client.say("Something else", session="s")
    assert response.body["dropped"] is True
    assert client.model.requests[-1] == [
        "user: Count.",
        "tool call: word_count",
        "tool result",
        "assistant: No.",
        "user: Something else",
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a", id="plain text"),
        pytest.param("a\u202eb", id="reversed text"),
        pytest.param("a\n\x07\u200bb", id="invisible characters"),
        pytest.param("a " * 200, id="long text"),
    ],
)
def test_a_question_in_the_terminal_shows_all_arguments_of_a_call(text: str) -> None:
    arguments: dict[str, Any] = {"n": 2**53 + 1, "text": text}
    call = ToolUse("1", "pay\u202e\n", arguments)
    request = TurnRequest("s", "Pay.")
    result = TurnResult("s", 1, "", "waiting", waiting=[call])
    questions: list[str] = []

    def answer_yes(question: str) -> str:
        questions.append(question)
        return "y"

    approval = Approval(Settings(), [], app.load)
    answers: Any = approval.ask(result, request, answer_yes)
    assert answers.reasons == {"1": None}

    [question] = questions
    lines = question.split("\n")
    assert all(line.isprintable() for line in lines)
    assert lines[-1].startswith(r"Run pay\u202e\u000a ")
    assert lines[-1].endswith("? [y/N/reason] ")
    # Long arguments have lines of their own, above the question.
    shown = lines[0].removeprefix(r"Run pay\u202e\u000a ").removesuffix("? [y/N/reason] ")
    assert json.loads(shown) == arguments
