"""A model's answers are repaired before their calls run, and checked before the commit."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from unittest.mock import Mock, patch

import pytest
from client import Client
from script import Reply, ToolCall
from scripted_model import ScriptedModel
from strands import Agent, ToolContext, tool
from strands.hooks import AfterToolsEvent
from strands.telemetry import get_tracer

from my_agent import agent
from my_agent.harness import file_parts
from my_agent.harness.contract import AgentError
from my_agent.harness.messages import (
    Messages,
    Repairs,
    call_of,
    check_messages,
    cut,
    to_send,
)
from my_agent.harness.settings import CoreSettings
from my_agent.harness.tool_schemas import (
    INVALID_ARGUMENTS,
    parse_arguments,
)


@tool
def word_count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@tool(context=True)
def count_all(text: str, tool_context: ToolContext) -> str:
    """Count the words of a text with another tool."""
    counted = tool_context.agent.tool.word_count(text=text, record_direct_tool_call=False)
    return str(counted["content"][0]["text"])


@pytest.fixture(autouse=True)
def tools() -> Iterator[None]:
    """Give the agent the tools of this module."""
    with patch.object(
        agent,
        "TOOLS",
        [word_count, count_all],
    ):
        yield


async def messages_after(client: Client) -> list[Any]:
    """Run a turn and return the messages of its session."""
    response = await client.say("Count.", session="s")
    assert response.reply == "Done."
    session = await client.runtime.sessions.read("s", None)
    messages: list[Any] = session.data["messages"]
    return messages


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param('{"text": "a"', id="a truncated object"),
        pytest.param("{'text': 'a'}", id="Python literals"),
        pytest.param('["a"]', id="a list"),
        pytest.param('"{\\"text\\": \\"a\\"}"', id="a string"),
        pytest.param('{"text": "a"} and more', id="text after the object"),
        pytest.param('{"text": "a"}{"text": "b"}', id="two objects"),
        pytest.param('{"text": "a\nb"}', id="a raw newline"),
        pytest.param('{"text": NaN}', id="NaN"),
        pytest.param('{"text": 1e999}', id="an infinite number"),
        pytest.param("null", id="null"),
        pytest.param('{"text": ' + "[" * 1200 + "]" * 1200 + "}", id="too many levels"),
    ],
)
async def test_a_call_with_invalid_arguments_does_not_run(
    arguments: str, caplog: pytest.LogCaptureFixture
) -> None:
    messages = await messages_after(Client(ToolCall("word_count", arguments), Reply("Done.")))
    assert messages[1]["content"][0]["toolUse"]["input"] == {}
    result = messages[2]["content"][0]["toolResult"]
    assert result["status"] == "error"
    assert result["content"] == [{"text": INVALID_ARGUMENTS + arguments[:200]}]
    assert "tool word_count: arguments are not one JSON object" in caplog.messages


def test_blank_arguments_are_an_empty_object() -> None:
    assert parse_arguments(" \n") == {}


def test_long_numbers_stay_exact() -> None:
    assert parse_arguments('{"n": 12345678901234567890}') == {"n": 12345678901234567890}


def test_a_lone_surrogate_in_arguments_is_replaced() -> None:
    assert parse_arguments('{"text": "\\ud800"}') == {"text": "\ufffd"}


@pytest.mark.parametrize(
    "id",
    [
        pytest.param("", id="empty"),
        pytest.param("functions.word_count:0", id="other characters"),
        pytest.param("a" * 41, id="too long"),
        pytest.param("1", id="used before"),
    ],
)
async def test_an_invalid_or_repeated_id_is_replaced(id: str) -> None:
    first_call = ToolCall("word_count", {"text": "a"}, id="1")
    second_call = ToolCall("word_count", {"text": "b c"}, id=id)
    messages = await messages_after(Client(first_call, second_call, Reply("Done.")))
    assert messages[1]["content"][0]["toolUse"]["toolUseId"] == "1"
    new_id = messages[3]["content"][0]["toolUse"]["toolUseId"]
    assert len(new_id) == 9
    assert new_id.isalnum()
    assert messages[4]["content"][0]["toolResult"]["content"] == [{"text": "2"}]


async def test_an_invalid_name_does_not_become_the_name_of_a_tool() -> None:
    call = ToolCall("word count", {"text": "a"})
    messages = await messages_after(Client(call, Reply("Done.")))
    assert messages[1]["content"][0]["toolUse"]["name"] == "word_count"
    result = messages[2]["content"][0]["toolResult"]
    assert result["content"] == [{"text": "Unknown tool: word_count"}]


async def test_a_nested_tool_call_does_not_block() -> None:
    call = ToolCall("count_all", {"text": "a b"})
    client = Client(call, Reply("Done."), max_tools_at_once=1, turn_timeout_seconds=5)
    messages = await messages_after(client)
    assert messages[2]["content"][0]["toolResult"]["content"] == [{"text": "2"}]


def test_an_approval_matches_the_whole_id() -> None:
    assert call_of("v1:before_tool_call:A:0-1") == "A"
    assert call_of("v1:tool_call:z:A:0-1") == "z:A"


def user(*content: Any) -> Any:
    """Return a user message of texts and other blocks."""
    return {"role": "user", "content": blocks_of(content)}


def assistant(*content: Any) -> Any:
    """Return an assistant's message of texts and other blocks."""
    return {"role": "assistant", "content": blocks_of(content)}


def blocks_of(content: tuple[Any, ...]) -> list[Any]:
    return [{"text": block} if isinstance(block, str) else block for block in content]


def call(id: str) -> Any:
    return {"toolUse": {"toolUseId": id, "name": "word_count", "input": {}}}


def result(id: str) -> Any:
    return {"toolResult": {"toolUseId": id, "status": "success", "content": [{"text": "1"}]}}


def test_reasoning_returns_only_to_its_model() -> None:
    reasoning = {"reasoningContent": {"redactedContent": b"x"}}
    answer = assistant(reasoning, call("1"))
    answer["metadata"] = {"custom": {"producer": "Model a"}}
    messages = [user("Hi."), answer]
    assert to_send(messages, "Model a")[1]["content"] == [reasoning, call("1")]
    assert to_send(messages, "Model b")[1]["content"] == [call("1")]


def test_reasoning_of_an_unknown_model_is_dropped() -> None:
    reasoning = {"reasoningContent": {"redactedContent": b"x"}}
    messages = [user("Hi."), assistant(reasoning, call("1"))]  # stored by an older version
    assert to_send(messages, "Model a")[1]["content"] == [call("1")]


def test_messages_of_an_older_version_become_valid() -> None:
    messages = [
        user("Hi."),
        assistant(" ", call("a:1"), call("a:1")),
        user(result("a:1"), result("a:1")),
        assistant(),
        user(),
        assistant("Done."),
    ]
    sent = to_send(messages, "")
    check_messages(sent)
    assert len(sent) == 4
    assert len(sent[1]["content"]) == 2
    assert to_send(messages, "") == sent  # for the provider's cache


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([], id="no messages"),
        pytest.param([user("Hi.")], id="no answer"),
        pytest.param([assistant("Hi.")], id="no prompt"),
        pytest.param([user("Hi."), assistant()], id="an empty answer"),
        pytest.param([user("Hi."), assistant(" ")], id="a blank answer"),
        pytest.param([user("Hi."), assistant("\ud800")], id="a lone surrogate"),
        pytest.param([user("Hi."), assistant(call("1"))], id="a call at the end"),
        pytest.param([user("Hi."), assistant("a"), assistant("b")], id="two answers in a row"),
        pytest.param(
            [user("Hi."), assistant(call("1")), user("a"), assistant("b")],
            id="a call without a result",
        ),
    ],
)
def test_invalid_messages_fail_the_turn(messages: list[Any]) -> None:
    with pytest.raises(AgentError):
        check_messages(messages)


def test_a_copy_shares_no_mutable_values() -> None:
    messages = Messages([{"content": [{"text": "Hi."}], "other": bytearray(b"a")}])
    copy = deepcopy(messages)
    assert copy == messages
    assert type(copy) is Messages
    copy[0]["content"][0]["text"] = "Bye."
    copy[0]["other"][0] = 0
    copy.append({})
    assert messages == [{"content": [{"text": "Hi."}], "other": bytearray(b"a")}]


def test_an_unrecorded_span_serializes_no_messages() -> None:
    unreadable: Any = [None]
    assert not get_tracer().start_model_invoke_span(unreadable).is_recording()


def test_other_blocks_stay_among_results() -> None:
    agent = Agent(model=ScriptedModel([]))
    repairs = Repairs(agent, CoreSettings(), Mock(), Mock())
    tool_result: Any = {"toolUseId": "1", "status": "success", "content": [{"text": "a\ud800"}]}
    cache_point: Any = {"cachePoint": {"type": "default"}}
    message: Any = {"role": "user", "content": [cache_point, {"toolResult": tool_result}]}
    repairs._set_results(AfterToolsEvent(agent=agent, message=message, invocation_state={}))
    assert message["content"][0] == cache_point
    assert tool_result["content"] == [{"text": "a\ufffd"}]


def test_a_short_result_is_not_cut() -> None:
    content = [{"text": "a" * 40}, {"json": {"rows": ["b" * 100]}}]
    assert cut(content, 1000) is content


def test_the_texts_of_a_result_are_cut_together() -> None:
    text = {"text": "a" * 40}
    image = {"image": {"format": "gif"}}
    rows = {"json": {"rows": ["b" * 100]}}
    first, second, last = cut([text, image, rows, {"text": "c"}], 100)
    assert first == text
    assert second == image
    assert last["text"].startswith(json.dumps(rows["json"])[:10])
    assert last["text"].endswith("… [cut: the result was 155 characters long]")
    assert len(first["text"] + last["text"]) == 100


def block(kind: str, name: str, format: str, data: bytes) -> dict[str, Any]:
    return {kind: {"name": name, "format": format, "source": {"bytes": data}}}


def test_a_note_replaces_a_file_that_cannot_be_sent() -> None:
    lost = block("image", "a", "png", b"")
    sound = block("document", "b", "docx", b"b")
    messages = [
        {"role": "user", "content": [{"text": "Hi."}, lost, sound]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "1", "content": [lost, sound]}}]},
    ]
    before = deepcopy(messages)
    prompt, results = file_parts.sendable(messages, ["image/png"])
    note = f"[A file of type {file_parts.MEDIA_TYPES['docx']}, which this model does not accept]"
    notes = [{"text": file_parts.LOST}, {"text": note}]
    assert prompt["content"][1:] == notes
    assert results["content"][0]["toolResult"] == {"toolUseId": "1", "content": notes}
    assert messages == before


def test_the_last_documents_are_sent_with_different_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_parts, "MAX_DOCUMENTS", 2)
    content = [block("document", "a", "pdf", data) for data in (b"1", b"2", b"")]
    result = {"toolResult": {"content": [block("document", "a", "pdf", b"3")]}}
    (message,) = file_parts.sendable([{"content": [*content, result]}], ["application/pdf"])
    first, second, lost, last = message["content"]
    assert first == {"text": "[The document a, which is no longer sent]"}
    assert second["document"]["name"] == "a"
    assert lost == {"text": file_parts.LOST}
    assert last["toolResult"]["content"] == [block("document", "a 2", "pdf", b"3")]
