"""Tool calls wait for a person, and the turn goes on with the answers."""

import json
from typing import Any
from unittest.mock import patch

import pytest
from client import JSON, POST, SESSION, Client
from gate import GATE

from app.approval.capability import Approval
from app.capabilities import Settings
from app.contract import Turn


@pytest.fixture(autouse=True)
def gate() -> Any:
    with patch(GATE[0], GATE[1], create=True):
        yield


async def ask(client: Client, body: object) -> Any:
    _, _, text = await client.send(POST, {**JSON, SESSION: "s"}, json.dumps(body).encode())
    return json.loads(text)


async def test_an_approved_call_runs_once_and_the_turn_is_committed() -> None:
    client = Client(["Well. ", ("call",)], ["Done."])
    waiting = await ask(client, {"prompt": "1"})
    (call,) = waiting["waiting"]
    assert (waiting["turn"], call["tool"]) == (1, "word_count")
    wrong = await ask(client, {"approve": ["other"]})
    assert wrong["error"]["type"] == "not_waiting" and call["id"] in wrong["error"]["message"]
    reply = await ask(client, {"approve": [call["id"]]})
    assert (reply["turn"], reply["reply"]) == (1, "Well. Done.")
    assert (await ask(client, {"approve": [call["id"]]}))["error"]["type"] == "not_waiting"
    assert client.model.calls == ["1", "1 Well.  (toolUse) (toolResult)"]


async def test_an_answer_is_alone_in_its_request_and_what_it_is_about_stays() -> None:
    client = Client([("call",)], ["Done."])
    (call,) = (await ask(client, {"prompt": "1"}))["waiting"]
    approval = {"approve": [call["id"]]}
    fork: dict[str, Any] = {"fork": "t", "at_turn": 1}
    for other in ({"end_session": True}, fork, {"at_turn": 1}, {"prompt": "2"}):
        refused = await ask(client, {**approval, **other})
        assert refused["error"]["type"] == "invalid_request"
    assert (await ask(client, approval))["reply"] == "Done."


@pytest.mark.parametrize("given", ["a", "a\u202eb", "a\n\x07\u200bb", "a " * 200], ids=ascii)
def test_a_question_hides_nothing_of_a_call(given: str) -> None:
    call = {"id": "1", "tool": "pay\u202e\n", "input": {"n": 2**53 + 1, "text": given}}
    last: Any = {"waiting": [call]}
    questions: list[str] = []

    def read(question: str) -> str:
        questions.append(question)
        return "y"

    answers: Any = Approval(Settings(), []).ask(last, Turn("s", None, None, ""), read)
    assert answers.reasons == {"1": None}
    (question,) = questions
    *above, last = question.split("\n")
    shown, _, _ = (above or [last])[0].removeprefix(r"Run pay\u202e\u000a ").partition("? [y")
    assert json.loads(shown) == call["input"]
    assert all(line.isprintable() for line in (*above, last))
    assert last.startswith("Run pay") and last.endswith("? [y/N/reason] ")


async def test_a_call_is_denied_and_a_new_prompt_drops_what_waits() -> None:
    client = Client([("call",)], ["No."], [("call",)])
    (call,) = (await ask(client, {"prompt": "1"}))["waiting"]
    denial = {"deny": [{"id": call["id"], "reason": "Not today."}]}
    assert (await ask(client, denial))["reply"] == "No."
    assert "Not today." in str(await client.runtime.sessions.store.load("s"))
    assert "waiting" in await ask(client, {"prompt": "2"})
    assert (await ask(client, {"prompt": "3"}))["dropped"] is True
    assert client.model.calls[-1] == "1 (toolUse) (toolResult) No. 3"
