"""The suite's own provider: if it were lenient, the rest of the suite would prove little."""

import http.client
import json
from typing import Any

import pytest

from tests.conformance.provider import Provider
from tests.conformance.steps import CUT, FADE, Call, Refuse, Step
from tests.conformance.wires import InvalidError, chat_history

USER = {"role": "user", "content": "Hello."}
ASSISTANT = {"role": "assistant", "content": "Hi."}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLING = {"role": "assistant", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "1"}
SYSTEM = {"role": "system", "content": "Be kind."}


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [ASSISTANT],
        [USER, USER],
        [USER, ASSISTANT],
        [USER, ASSISTANT, ASSISTANT, USER],
        [USER, SYSTEM, ASSISTANT, USER],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": " \n"}],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": [{"type": "text", "text": ""}]}],
        [USER, {"role": "assistant", "content": ""}, USER],
        [USER, {"role": "assistant"}, USER],
        [USER, RESULT],
        [USER, CALLING],
        [USER, CALLING, USER],
        [USER, CALLING, ASSISTANT, USER],
        [USER, CALLING, RESULT, RESULT],
        [USER, CALLING, RESULT, USER],
        [USER, {**CALLING, "tool_calls": [CALL, CALL]}, RESULT],
        [USER, {"role": "narrator", "content": "Once."}],
    ],
)
def test_it_refuses_a_history_that_a_strict_provider_refuses(
    messages: list[dict[str, Any]],
) -> None:
    with pytest.raises(InvalidError):
        chat_history(messages)


def test_it_reads_a_history() -> None:
    messages: list[dict[str, Any]] = [
        SYSTEM,
        USER,
        CALLING,
        RESULT,
        ASSISTANT,
        {"role": "user", "content": "So?"},
    ]
    assert chat_history(messages) == [
        ("user", "Hello."),
        ("call", "f", {}),
        ("result", "1"),
        ("assistant", "Hi."),
        ("user", "So?"),
    ]


def ask(provider: Provider, prompt: str, *steps: Step) -> tuple[int, bytes]:
    provider.script(prompt, *steps)
    connection = http.client.HTTPConnection(provider.origin.removeprefix("http://"))
    message = {"role": "user", "content": prompt}
    body = json.dumps({"model": "m", "stream": True, "messages": [message]})
    connection.request("POST", "/v1/chat/completions", body, {"Authorization": "Bearer test"})
    response = connection.getresponse()
    return response.status, response.read()


def test_a_finished_stream_has_a_reason_and_an_end(provider: Provider) -> None:
    status, body = ask(provider, "Finish.", ["Hi"])
    assert status == 200
    assert b'"finish_reason": "stop"' in body
    assert body.endswith(b"data: [DONE]\n\n")


def test_a_faded_stream_ends_cleanly_and_has_neither(provider: Provider) -> None:
    status, body = ask(provider, "Fade.", ["Hi", FADE])
    assert status == 200
    assert b'"finish_reason": "' not in body
    assert b"[DONE]" not in body


def test_a_cut_stream_does_not_end_cleanly(provider: Provider) -> None:
    with pytest.raises(http.client.IncompleteRead):
        ask(provider, "Cut.", ["Hi", CUT])


def test_a_tool_call_comes_in_two_pieces(provider: Provider) -> None:
    _, body = ask(provider, "Call.", [Call("f", {"a": "b"})])
    assert body.count(b'"tool_calls": [') == 2
    assert b'"finish_reason": "tool_calls"' in body


def test_a_refusal_stays(provider: Provider) -> None:
    assert [ask(provider, "Refuse.", [Refuse(429)])[0] for _ in range(2)] == [429, 429]


def test_it_records_refused_requests(provider: Provider) -> None:
    status, _ = ask(provider, " ")
    assert status == 400
    assert provider.problems.pop() == "an empty user message"
