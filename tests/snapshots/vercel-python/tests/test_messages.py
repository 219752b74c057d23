"""What a model may answer: a call runs only with arguments that are one JSON object."""

import logging
from typing import Any

import ai
import pytest

from app.contract import AgentError
from app.messages import (
    bounded,
    check_messages,
    input_of,
    invented_name,
    mark,
    mend_stored,
    refusal,
    repair,
    shown_to,
)
from app.offline_model import OfflineModel
from app.tool_schemas import REFUSED
from app.turn import as_tool_call

TOOLS = {"delete_orders"}
BROKEN = {
    "truncated": '{"customer": "ada"',
    "Python literals": "{'customer': None}",
    "a list": '["ada"]',
    "a string": '"{}"',
    "null": "null",
    "text after the object": '{"customer": "ada"} Done.',
    "two objects": '{"customer": "ada"}{"customer": "bob"}',
    "a raw newline": '{"customer": "a\nda"}',
    "NaN": '{"customer": NaN}',
    "a number without end": '{"customer": 1e999}',
    "too deep": '{"customer": ' + "[" * 100_000,
    "too deep for Python": '{"customer": ' + "[" * 1200 + "]" * 1200 + "}",
}


def answer(*calls: tuple[str, str, str], text: str = "") -> ai.messages.Message:
    """An answer with calls: id, name and arguments of each."""
    parts: list[Any] = [ai.messages.TextPart(text=text)] if text else []
    parts += [
        ai.messages.ToolCallPart(tool_call_id=id, tool_name=name, tool_args=arguments)
        for id, name, arguments in calls
    ]
    return ai.messages.Message(role="assistant", parts=parts)


def results(*ids: str) -> ai.messages.Message:
    return ai.tool_message(
        *(ai.tool_message(tool_call_id=id, result="1", tool_name="delete_orders") for id in ids)
    )


@pytest.mark.parametrize("arguments", BROKEN.values(), ids=BROKEN)
def test_a_call_is_refused_with(arguments: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        [call] = repair(answer(("a", "delete_orders", arguments)), [], TOOLS, 64)
    assert refusal(call) == REFUSED + arguments[:200]
    assert call.tool_args == "{}"
    assert as_tool_call(call).input == arguments[:200]
    assert caplog.messages == ["tool delete_orders: arguments are not one JSON object"]


@pytest.mark.parametrize("arguments", ["", " \n", "{}"])
def test_a_call_without_arguments_runs(arguments: str) -> None:
    [call] = repair(answer(("a", "delete_orders", arguments)), [], TOOLS, 64)
    assert not refusal(call)
    assert input_of(call) == {}


def test_a_lone_surrogate_is_replaced_before_a_call_runs() -> None:
    [call] = repair(answer(("a", "delete_orders", '{"customer": "\\ud83d"}')), [], TOOLS, 64)
    assert input_of(call) == {"customer": "\ufffd"}


def test_ids_are_new_and_accepted_everywhere() -> None:
    earlier = answer(("a", "delete_orders", "{}"))
    ids = ("a", "b", "b", "functions.delete:0", "c" * 41, "")
    calls = repair(answer(*((id, "delete_orders", "{}") for id in ids)), [earlier], TOOLS, 64)
    found = [call.tool_call_id for call in calls]
    assert found[1] == "b"
    assert len({"a", *found}) == 7
    assert all(id == "b" or (len(id) == 9 and id.isalnum()) for id in found)


def test_a_name_that_no_provider_accepts_is_no_name_of_a_tool() -> None:
    [call] = repair(answer(("a", "delete orders", "{}")), [], TOOLS, 64)
    assert call.tool_name == "delete_orders"
    assert invented_name(call) == "delete orders"


def test_reasoning_is_kept_with_calls_and_shown_to_its_own_model() -> None:
    model, other = OfflineModel(), OfflineModel(id="other")
    end = mark(ai.events.StreamEnd(finish_reason="tool_call"), model)
    assert isinstance(end, ai.events.StreamEnd)
    message = answer(("a", "delete_orders", "{}"))
    message.provider_metadata = end.provider_metadata
    message.parts.insert(0, ai.messages.ReasoningPart(text="Hm."))
    repair(message, [], TOOLS, 64)
    assert shown_to(model, [message])[0].reasoning == "Hm."
    assert shown_to(other, [message])[0].reasoning == ""
    message.parts = [part for part in message.parts if part.kind == "reasoning"]
    repair(message, [], TOOLS, 64)
    assert message.parts == []


def test_stored_ids_and_names_become_acceptable() -> None:
    call, result = mend_stored([answer(("f:0", "a b", "{}")), results("f:0")])
    assert call.tool_calls[0].tool_call_id == result.tool_results[0].tool_call_id
    assert call.tool_calls[0].tool_call_id.isalnum()
    assert call.tool_calls[0].tool_name == "a_b"


CALL, USER = answer(("a", "delete_orders", "{}")), ai.user_message("Hi.")
WRONG = {
    "two messages of the assistant in a row": [USER, answer(text="a"), answer(text="b")],
    "an empty message": [USER, answer()],
    "a blank text": [USER, answer(text=" ")],
    "calls and results differ": [USER, CALL, results("b"), answer(text="a")],
    "calls without results": [USER, CALL],
    "two calls with one id": [USER, CALL, results("a"), CALL, results("a"), answer(text="a")],
    "a lone surrogate": [USER, answer(text="\ud800")],
    "the last message is not the assistant's": [USER],
}


@pytest.mark.parametrize(("detail", "messages"), WRONG.items(), ids=WRONG)
def test_a_turn_is_not_stored_with(detail: str, messages: list[Any]) -> None:
    with pytest.raises(AgentError) as failure:
        check_messages(messages, 0, waits=False)
    assert failure.value.type == "model_failed"
    assert failure.value.detail == detail


def test_a_turn_that_waits_is_stored_without_results() -> None:
    check_messages([USER, CALL], 0, waits=True)
    with pytest.raises(AgentError):
        check_messages([USER, answer(text="Hi.")], 0, waits=True)


def test_a_result_is_cut_as_a_whole() -> None:
    def of(value: Any) -> Any:
        ids: Any = {"tool_call_id": "a", "tool_name": "read"}
        part = ai.messages.ToolResultPart(**ids, result=value)
        return bounded(part, 100).result

    note = "… [cut: the result was {} characters long]"
    assert of({"rows": [1]}) == {"rows": [1]}
    rows = of({"rows": ["b" * 200]})
    assert rows.startswith('{"rows": ["bb')
    assert rows.endswith(note.format(214))
    assert len(rows) == 100
    texts = [ai.messages.TextPart(text=text) for text in ("a" * 40, "b" * 80)]
    image = ai.messages.FilePart(data=b"GIF89a", media_type="image/gif")
    first, file, second = of(ai.messages.ContentOutput(value=[texts[0], image, texts[1]])).value
    assert file == image
    assert (first.text + second.text).endswith(note.format(120))
    assert len(first.text + second.text) == 100
