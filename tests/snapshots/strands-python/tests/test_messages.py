"""What a model answers is repaired before it runs and is stored, whatever the model."""

import json
from copy import deepcopy
from typing import Any
from unittest.mock import Mock, patch

import pytest
from client import JSON, POST, SESSION, Client
from conftest import ScriptedModel
from strands import Agent, ToolContext, tool
from strands.hooks import AfterToolsEvent
from strands.telemetry import get_tracer

from app.contract import AgentError
from app.messages import Messages, Repairs, call_of, check_messages, cut, to_send
from app.settings import CoreSettings
from app.tool_schemas import REFUSED, parse_arguments

NOT_ONE_OBJECT = [
    '{"text": "a"',
    "{'text': 'a'}",
    '["a"]',
    '"{\\"text\\": \\"a\\"}"',
    '{"text": "a"} and more',
    '{"text": "a"}{"text": "b"}',
    '{"text": "a\nb"}',
    '{"text": NaN}',
    '{"text": 1e999}',
    "null",
    '{"text": ' + "[" * 1200 + "]" * 1200 + "}",
]


@tool
def word_count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@tool(context=True)
def count_all(text: str, tool_context: ToolContext) -> str:
    """Count the words of a text with another tool."""
    counted = tool_context.agent.tool.word_count(text=text, record_direct_tool_call=False)
    return str(counted["content"][0]["text"])


async def answer(*script: Any, **settings: Any) -> tuple[Any, list[Any]]:
    """Return the reply to a prompt, and the messages that the session holds then."""
    body = json.dumps({"prompt": "Count."}).encode()
    with patch("app.runtime.TOOLS", [word_count, count_all]):
        client = Client(**settings)
        client.runtime.model = ScriptedModel(script)
        _, _, text = await client.send(POST, {**JSON, SESSION: "s"}, body)
    session = await client.runtime.sessions.read("s", None)
    return json.loads(text), session.data["messages"]


@pytest.mark.parametrize("arguments", NOT_ONE_OBJECT)
async def test_a_call_without_one_object_of_arguments_does_not_run(
    arguments: str, caplog: Any
) -> None:
    body, messages = await answer([("call", arguments)], ["Done."])
    assert body["reply"] == "Done."
    assert messages[1]["content"][0]["toolUse"]["input"] == {}
    result = messages[2]["content"][0]["toolResult"]
    assert result["content"] == [{"text": REFUSED + arguments[:200]}]
    assert result["status"] == "error"
    (warning,) = [record for record in caplog.records if record.name.startswith("app")][:1]
    assert warning.message == "tool word_count: arguments are not one JSON object"


async def test_blank_arguments_are_an_empty_object() -> None:
    assert parse_arguments(" \n") == {}
    assert parse_arguments('{"n": 12345678901234567890}') == {"n": 12345678901234567890}
    assert parse_arguments('{"text": "\\ud800"}') == {"text": "\ufffd"}


@pytest.mark.parametrize("id", ["", "functions.word_count:0", "a" * 41, "1"])
async def test_an_id_is_valid_and_occurs_once(id: str) -> None:
    call, again = ("call", '{"text": "a"}', "1"), ("call", '{"text": "b c"}', id)
    _, messages = await answer([call], [again], ["Done."])
    first, second = (messages[at]["content"][0]["toolUse"]["toolUseId"] for at in (1, 3))
    assert first == "1" and len(second) == 9 and second.isalnum()
    assert messages[4]["content"][0]["toolResult"]["content"] == [{"text": "2"}]


async def test_a_name_that_no_tool_can_have_is_not_mended_into_one_that_exists() -> None:
    _, messages = await answer([("call", '{"text": "a"}', "1", "word count")], ["Done."])
    assert messages[1]["content"][0]["toolUse"]["name"] == "word_count"
    result = messages[2]["content"][0]["toolResult"]
    assert result["content"] == [{"text": "Unknown tool: word_count"}]


async def test_a_tool_that_calls_another_does_not_wait_for_itself() -> None:
    call = ("call", '{"text": "a b"}', "1", "count_all")
    limits = {"max_tools_at_once": 1, "turn_timeout_seconds": 5}
    body, messages = await answer([call], ["Done."], **limits)
    assert body.get("reply") == "Done."
    assert messages[2]["content"][0]["toolResult"]["content"] == [{"text": "2"}]


def test_an_approval_is_for_one_whole_id() -> None:
    assert call_of("v1:before_tool_call:A:0-1") == "A"
    assert call_of("v1:tool_call:z:A:0-1") == "z:A"


def call(id: str, **other: Any) -> Any:
    return {"toolUse": {"toolUseId": id, "name": "word_count", "input": {}, **other}}


def result(id: str) -> Any:
    return {"toolResult": {"toolUseId": id, "status": "success", "content": [{"text": "1"}]}}


def said(role: str, *content: Any) -> Any:
    return {
        "role": role,
        "content": [{"text": it} if isinstance(it, str) else it for it in content],
    }


def test_reasoning_goes_back_only_to_the_model_that_wrote_it() -> None:
    thought = {"reasoningContent": {"redactedContent": b"x"}}
    messages = [said("user", "Hi."), said("assistant", thought, call("1"))]
    messages[1]["metadata"] = {"custom": {"producer": "Model a"}}
    assert to_send(messages, "Model a")[1]["content"] == [thought, call("1")]
    assert to_send(messages, "Model b")[1]["content"] == [call("1")]
    del messages[1]["metadata"]  # as an older version stored it
    assert to_send(messages, "Model a")[1]["content"] == [call("1")]


def test_what_an_older_version_stored_is_sent_in_a_valid_form() -> None:
    messages = [
        said("user", "Hi."),
        said("assistant", " ", call("a:1"), call("a:1")),
        said("user", result("a:1"), result("a:1")),
        said("assistant"),
        said("user"),
        said("assistant", "Done."),
    ]
    sent = to_send(messages, "")
    check_messages(sent)
    assert len(sent) == 4 and len(sent[1]["content"]) == 2
    assert to_send(messages, "") == sent  # so that the cache of a provider serves it


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [said("user", "Hi.")],
        [said("assistant", "Hi.")],
        [said("user", "Hi."), said("assistant")],
        [said("user", "Hi."), said("assistant", " ")],
        [said("user", "Hi."), said("assistant", "\ud800")],
        [said("user", "Hi."), said("assistant", call("1"))],
        [said("user", "Hi."), said("assistant", "a"), said("assistant", "b")],
        [
            said("user", "Hi."),
            said("assistant", call("1")),
            said("user", "a"),
            said("assistant", "b"),
        ],
    ],
)
def test_a_turn_that_a_vendor_would_refuse_later_fails(messages: list[Any]) -> None:
    with pytest.raises(AgentError):
        check_messages(messages)


def test_a_copy_shares_nothing_that_can_change() -> None:
    messages = Messages([{"content": [{"text": "Hi."}], "other": bytearray(b"a")}])
    copy = deepcopy(messages)
    assert (copy, type(copy)) == (messages, Messages)
    copy[0]["content"][0]["text"] = "Bye."
    copy[0]["other"][0] = 0
    copy.append({})
    assert messages == [{"content": [{"text": "Hi."}], "other": bytearray(b"a")}]


def test_a_span_that_nobody_records_costs_no_json() -> None:
    unreadable: Any = [None]
    assert not get_tracer().start_model_invoke_span(unreadable).is_recording()


def test_a_block_that_is_no_result_stays_among_results() -> None:
    agent, shortening = Agent(model=ScriptedModel([])), Mock()
    repairs = Repairs(agent, CoreSettings(), shortening)
    content = [{"text": "a\ud800"}]
    result: Any = {"toolUseId": "1", "status": "success", "content": content}
    message: Any = {"role": "user", "content": [{"cachePoint": {"type": "default"}}]}
    message["content"].append({"toolResult": result})
    repairs._set_results(AfterToolsEvent(agent=agent, message=message, invocation_state={}))
    assert message["content"][0] == {"cachePoint": {"type": "default"}}
    assert result["content"] == [{"text": "a\ufffd"}]


def test_the_texts_of_a_result_are_cut_together() -> None:
    image = {"image": {"format": "gif"}}
    content = [{"text": "a" * 40}, image, {"json": {"rows": ["b" * 100]}}, {"text": "c"}]
    assert cut(content, 1000) is content
    first, second, last = cut(content, 100)
    assert (first, second) == ({"text": "a" * 40}, image)
    assert last["text"].startswith('{"rows": [')
    assert last["text"].endswith("… [cut: the result was 155 characters long]")
    assert len(first["text"] + last["text"]) == 100
