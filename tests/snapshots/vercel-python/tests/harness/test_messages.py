"""A model's answers are repaired before their calls run, and checked before the commit."""

import logging
from typing import Any

import ai
import pytest

from my_agent.harness import file_parts
from my_agent.harness.contract import AgentError
from my_agent.harness.echo_model import OfflineModel
from my_agent.harness.messages import (
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
from my_agent.harness.tool_schemas import INVALID_ARGUMENTS
from my_agent.harness.turn import as_tool_call

Message = ai.messages.Message
USER = ai.user_message("Hi.")


def assistant(*parts: Any) -> Message:
    """Return an assistant's message of texts and other parts."""
    contents = [ai.messages.TextPart(text=it) if isinstance(it, str) else it for it in parts]
    return Message(role="assistant", parts=contents)


def call(id: str, *, name: str = "delete_orders", arguments: str = "{}") -> Any:
    return ai.messages.ToolCallPart(tool_call_id=id, tool_name=name, tool_args=arguments)


def result(id: str) -> Message:
    return ai.tool_message(ai.tool_message(tool_call_id=id, result="1", tool_name="delete_orders"))


def repaired(answer: Message, earlier: list[Message] | None = None) -> list[Any]:
    """Return the repaired calls of an answer; the only tool is delete_orders."""
    return repair(answer, earlier or [], {"delete_orders"}, 64)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param('{"customer": "ada"', id="a truncated object"),
        pytest.param("{'customer': None}", id="Python literals"),
        pytest.param('["ada"]', id="a list"),
        pytest.param('"{}"', id="a string"),
        pytest.param("null", id="null"),
        pytest.param('{"customer": "ada"} Done.', id="text after the object"),
        pytest.param('{"customer": "ada"}{"customer": "bob"}', id="two objects"),
        pytest.param('{"customer": "a\nda"}', id="a raw newline"),
        pytest.param('{"customer": NaN}', id="NaN"),
        pytest.param('{"customer": 1e999}', id="an infinite number"),
        pytest.param('{"customer": ' + "[" * 100_000, id="far too many levels"),
        pytest.param('{"customer": ' + "[" * 1200 + "]" * 1200 + "}", id="too many levels"),
    ],
)
def test_a_call_with_invalid_arguments_does_not_run(
    arguments: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        [refused] = repaired(assistant(call("a", arguments=arguments)))
    assert refusal(refused) == INVALID_ARGUMENTS + arguments[:200]
    assert refused.tool_args == "{}"
    assert as_tool_call(refused).input == arguments[:200]
    assert caplog.messages == ["tool delete_orders: arguments are not one JSON object"]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("", id="empty"),
        pytest.param(" \n", id="blank"),
        pytest.param("{}", id="an empty object"),
    ],
)
def test_a_call_without_arguments_runs(arguments: str) -> None:
    [accepted] = repaired(assistant(call("a", arguments=arguments)))
    assert not refusal(accepted)
    assert input_of(accepted) == {}


def test_a_lone_surrogate_in_arguments_is_replaced() -> None:
    [accepted] = repaired(assistant(call("a", arguments='{"customer": "\\ud83d"}')))
    assert input_of(accepted) == {"customer": "\ufffd"}


@pytest.mark.parametrize(
    "id",
    [
        pytest.param("", id="empty"),
        pytest.param("functions.delete:0", id="other characters"),
        pytest.param("c" * 41, id="too long"),
        pytest.param("a", id="used before"),
    ],
)
def test_an_invalid_or_repeated_id_is_replaced(id: str) -> None:
    [accepted] = repaired(assistant(call(id)), earlier=[assistant(call("a"))])
    assert accepted.tool_call_id not in {"", "a", id}
    assert len(accepted.tool_call_id) == 9
    assert accepted.tool_call_id.isalnum()


def test_ids_of_an_answer_are_unique() -> None:
    first, second, third = repaired(assistant(call("b"), call("b"), call("")))
    assert first.tool_call_id == "b"
    assert len({first.tool_call_id, second.tool_call_id, third.tool_call_id}) == 3


def test_an_invalid_name_does_not_become_the_name_of_a_tool() -> None:
    [refused] = repaired(assistant(call("a", name="delete orders")))
    assert refused.tool_name == "delete_orders"
    assert invented_name(refused) == "delete orders"


def answer_with_reasoning(*parts: Any, model: ai.Model) -> Message:
    """Return an answer that begins with reasoning."""
    end = mark(ai.events.StreamEnd(finish_reason="tool_call"), model)
    assert isinstance(end, ai.events.StreamEnd)
    answer = assistant(ai.messages.ReasoningPart(text="Hm."), *parts)
    answer.provider_metadata = end.provider_metadata
    return answer


def test_reasoning_returns_only_to_its_model() -> None:
    model = OfflineModel()
    answer = answer_with_reasoning(call("a"), model=model)
    repaired(answer)
    assert shown_to(model, [answer])[0].reasoning == "Hm."
    assert shown_to(OfflineModel(id="other"), [answer])[0].reasoning == ""


def test_reasoning_without_a_call_is_dropped() -> None:
    answer = answer_with_reasoning(model=OfflineModel())
    repaired(answer)
    assert answer.parts == []


def test_ids_and_names_of_an_older_version_become_valid() -> None:
    answer, tool = mend_stored([assistant(call("f:0", name="a b")), result("f:0")])
    assert answer.tool_calls[0].tool_call_id == tool.tool_results[0].tool_call_id
    assert answer.tool_calls[0].tool_call_id.isalnum()
    assert answer.tool_calls[0].tool_name == "a_b"


@pytest.mark.parametrize(
    ("detail", "messages"),
    [
        ("two messages from the assistant in a row", [USER, assistant("a"), assistant("b")]),
        ("an empty message", [USER, assistant()]),
        ("a blank text", [USER, assistant(" ")]),
        (
            "calls and results differ",
            [USER, assistant(call("a")), result("b"), assistant("Done.")],
        ),
        ("calls without results", [USER, assistant(call("a"))]),
        (
            "two calls with the same id",
            [
                USER,
                assistant(call("a")),
                result("a"),
                assistant(call("a")),
                result("a"),
                assistant("Done."),
            ],
        ),
        ("a lone surrogate", [USER, assistant("\ud800")]),
        ("the last message is not from the assistant", [USER]),
    ],
)
def test_invalid_messages_fail_the_turn(detail: str, messages: list[Message]) -> None:
    with pytest.raises(AgentError) as failure:
        check_messages(messages, 0, waits=False)
    assert failure.value.type == "model_failed"
    assert failure.value.detail == detail


def test_a_waiting_turn_has_calls_without_results() -> None:
    check_messages([USER, assistant(call("a"))], 0, waits=True)


def test_a_waiting_turn_needs_a_call() -> None:
    with pytest.raises(AgentError):
        check_messages([USER, assistant("Hi.")], 0, waits=True)


def cut_to_100(value: Any) -> Any:
    """Return a tool's result, cut to 100 characters."""
    part: Any = ai.messages.ToolResultPart(tool_call_id="a", tool_name="read", result=value)
    return bounded(part, 100).result


def test_a_short_result_is_not_cut() -> None:
    assert cut_to_100({"rows": [1]}) == {"rows": [1]}


def test_a_long_result_is_cut() -> None:
    text = cut_to_100({"rows": ["b" * 200]})
    assert text.startswith('{"rows": ["bb')
    assert text.endswith("… [cut: the result was 214 characters long]")
    assert len(text) == 100


def test_the_texts_of_a_result_are_cut_together() -> None:
    image = ai.messages.FilePart(data=b"GIF89a", media_type="image/gif")
    content = ai.messages.ContentOutput(
        value=[
            ai.messages.TextPart(text="a" * 40),
            image,
            ai.messages.TextPart(text="b" * 80),
        ]
    )
    first, file, second = cut_to_100(content).value
    assert file == image
    assert (first.text + second.text).endswith("… [cut: the result was 120 characters long]")
    assert len(first.text + second.text) == 100


def file_part(media_type: str, data: str) -> Any:
    return ai.messages.FilePart(media_type=media_type, data=data, filename="a")


def with_files(*parts: Any) -> list[Message]:
    """Return a prompt with files, and a tool's result with the same files."""
    content = ai.messages.ContentOutput(value=[*parts])
    part = ai.messages.ToolResultPart(
        tool_call_id="1", tool_name="photo", result=content, result_kind="special"
    )
    return [ai.user_message("Hi.", *parts), Message(role="tool", parts=[part])]


def texts_of(messages: list[Message]) -> list[list[str]]:
    prompt, results = messages
    content = results.parts[0].get_model_input().value  # type: ignore[union-attr]
    return [[getattr(part, "text", "") for part in parts] for parts in (prompt.parts, content)]


def test_a_note_replaces_a_file_that_cannot_be_sent() -> None:
    messages = with_files(file_part("image/png", ""), file_part("image/gif", "R0lG"))
    note = "[A file of type image/gif, which this model does not accept]"
    sent = texts_of(file_parts.sendable(messages, ["image/png"]))
    assert sent == [["Hi.", file_parts.LOST, note], [file_parts.LOST, note]]
    assert texts_of(messages) == [["Hi.", "", ""], ["", ""]]


def test_only_the_last_documents_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_parts, "MAX_DOCUMENTS", 1)
    messages = with_files(file_part("application/pdf", "JVBE"), file_part("application/pdf", ""))
    sent = texts_of(file_parts.sendable(messages, ["application/pdf"]))
    note = "[The document a, which is no longer sent]"
    assert sent == [["Hi.", note, file_parts.LOST], ["", file_parts.LOST]]
