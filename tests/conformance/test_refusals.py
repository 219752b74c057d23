"""The list of what providers refuse: a rule that refuses nothing would prove nothing."""

from typing import Any

import pytest

from tests.conformance.refusals import refusals

USER = {"role": "user", "content": "Hello."}
ASSISTANT = {"role": "assistant", "content": "Hi."}
FUNCTION = {"name": "f", "arguments": "{}"}
CALL = {"id": "call_1", "type": "function", "function": FUNCTION}
CALLING = {"role": "assistant", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "1"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "f", "description": "F.", "parameters": SCHEMA}}

USE = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
ANSWER = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "1"}
ANTHROPIC_TOOL = {"name": "f", "description": "F.", "input_schema": SCHEMA}

TOOL_USE = {"toolUse": {"toolUseId": "tooluse_1", "name": "f", "input": {}}}
TOOL_RESULT = {"toolResult": {"toolUseId": "tooluse_1", "content": [{"text": "1"}]}}
SPEC = {"name": "f", "description": "F.", "inputSchema": {"json": SCHEMA}}
TOOL_CONFIG = {"tools": [{"toolSpec": SPEC}]}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [*blocks]}


def chat(*messages: Any, **settings: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [*messages], **settings}


def anthropic(*messages: Any, **settings: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 100, "messages": [*messages], **settings}


def bedrock(*messages: Any, **settings: Any) -> dict[str, Any]:
    return {"messages": [*messages], "toolConfig": TOOL_CONFIG, **settings}


def calling(**changes: Any) -> dict[str, Any]:
    return {**CALLING, "tool_calls": [{**CALL, **changes}]}


def tool(**changes: Any) -> dict[str, Any]:
    return {**TOOL, "function": {**TOOL["function"], **changes}}  # type: ignore[dict-item]


def schema(**changes: Any) -> dict[str, Any]:
    return tool(parameters={**SCHEMA, **changes})


ALLOWED = {
    "chat": [
        chat(USER),
        chat({"role": "system", "content": "Be kind."}, USER, ASSISTANT, USER),
        chat(USER, CALLING, RESULT, tools=[TOOL], tool_choice="auto"),
        chat(USER, CALLING, RESULT, ASSISTANT, USER, tools=[TOOL]),
    ],
    "anthropic": [
        anthropic(USER, system="Be kind."),
        anthropic(USER, assistant(USE), user(ANSWER), tools=[ANTHROPIC_TOOL]),
        anthropic(USER, assistant(USE), user(ANSWER, {"type": "text", "text": "So?"})),
        anthropic(USER, assistant({"type": "thinking", "thinking": "", "signature": "a"}), USER),
    ],
    "bedrock": [
        bedrock(user({"text": "Hello."})),
        bedrock(user({"text": "Hello."}), assistant(TOOL_USE), user(TOOL_RESULT)),
    ],
}
REFUSED = {
    "chat": [
        chat(),
        chat(ASSISTANT, USER),
        chat(USER, ASSISTANT),
        chat(USER, USER),
        chat(USER, ASSISTANT, ASSISTANT, USER),
        chat({"role": "user", "content": " "}),
        chat({"role": "user", "content": "a\ud800"}),
        chat(USER, {"role": "assistant", "content": ""}, USER),
        chat(USER, {**ASSISTANT, "tool_calls": []}, USER),
        chat(USER, {**ASSISTANT, "reasoning_content": "Hm."}, USER),
        chat(USER, RESULT),
        chat(USER, CALLING),
        chat(USER, CALLING, RESULT, RESULT),
        chat(USER, {**CALLING, "tool_calls": [CALL, CALL]}, RESULT, RESULT),
        chat(USER, CALLING, RESULT, CALLING, RESULT),
        chat(USER, calling(id="a" * 41), {**RESULT, "tool_call_id": "a" * 41}),
        chat(USER, calling(id=7), {**RESULT, "tool_call_id": 7}),
        chat(USER, calling(function={**FUNCTION, "name": "a b"}), RESULT),
        chat(USER, calling(function={**FUNCTION, "arguments": "[]"}), RESULT),
        chat(USER, calling(function={**FUNCTION, "arguments": '{"a": NaN}'}), RESULT),
        chat(USER, calling(function={**FUNCTION, "arguments": {}}), RESULT),
        chat(USER, tools=[]),
        chat(USER, tool_choice="auto"),
        chat(USER, parallel_tool_calls=True),
        chat(USER, tools=[TOOL, TOOL]),
        chat(USER, tools=[tool(name=f"f{n}") for n in range(129)]),
        chat(USER, tools=[tool(name="a.b")]),
        chat(USER, tools=[tool(description="a" * 1025)]),
        chat(USER, tools=[tool(parameters={"type": "object"})]),
        chat(USER, tools=[schema(anyOf=[{"required": ["a"]}])]),
        chat(USER, tools=[schema(properties={"a": {"type": "array"}})]),
    ],
    "anthropic": [
        {"model": "m", "messages": [USER]},
        anthropic(USER, USER),
        anthropic(user({"type": "text", "text": "\n"})),
        anthropic(USER, assistant(USE), USER),
        anthropic(USER, assistant(USE), user({"type": "text", "text": "So?"}, ANSWER)),
        anthropic(USER, assistant({**USE, "id": "a:0"}), user({**ANSWER, "tool_use_id": "a:0"})),
        anthropic(USER, assistant({**USE, "name": "a b"}), user(ANSWER)),
        anthropic(USER, assistant({**USE, "input": "{}"}), user(ANSWER)),
        anthropic(USER, assistant({**USE, "text": "a"}), user(ANSWER)),
        anthropic(USER, assistant(USE, USE), user(ANSWER, ANSWER)),
        anthropic(USER, assistant(USE), user({**ANSWER, "content": [], "is_error": True})),
        anthropic(USER, assistant({"type": "thinking", "thinking": "Hm."}), USER),
        anthropic(USER, assistant({"type": "redacted_thinking"}), USER),
        anthropic(USER, system=" "),
        anthropic(USER, tools=[]),
        anthropic(USER, tools=[{**ANTHROPIC_TOOL, "input_schema": {"type": "array"}}]),
        anthropic(USER, thinking={"type": "enabled", "budget_tokens": 1024}),
    ],
    "bedrock": [
        bedrock(user({"text": ""})),
        bedrock(user()),
        bedrock(user({"text": "Hello.", "image": {}})),
        bedrock(user({"text": "Hello."}), assistant(TOOL_USE), user({"text": "So?"})),
        {"messages": [user({"text": "Hello."}), assistant(TOOL_USE), user(TOOL_RESULT)]},
        bedrock(user({"text": "Hello."}), toolConfig={"tools": []}),
        bedrock(
            user({"text": "Hello."}),
            assistant({"reasoningContent": {"reasoningText": {"text": "Hm."}}}, TOOL_USE),
            user(TOOL_RESULT),
        ),
    ],
}


@pytest.mark.parametrize(
    ("api", "body"), [(api, body) for api, bodies in ALLOWED.items() for body in bodies]
)
def test_a_valid_request_is_taken(api: str, body: dict[str, Any]) -> None:
    assert refusals(api, body) == []


@pytest.mark.parametrize(
    ("api", "body"), [(api, body) for api, bodies in REFUSED.items() for body in bodies]
)
def test_a_request_that_a_vendor_refuses(api: str, body: dict[str, Any]) -> None:
    assert len(refusals(api, body)) >= 1


def test_a_field_of_its_own_is_taken_by_a_provider() -> None:
    body = chat(USER, {**ASSISTANT, "reasoning_content": "Hm."}, USER)
    assert refusals("chat", body, own={"reasoning_content"}) == []
