"""The requests that model providers refuse, as documented or as quoted in public reports.

Every stand-in for a provider asks `refusals` and answers 400, so that a request that a vendor
refuses fails the test that sent it. A rule of one vendor holds for every stand-in of that API.
"""

import json
import re
from base64 import b64decode
from collections.abc import Collection, Iterator
from typing import Any

from tests.conformance.wires import BLANKS

Json = dict[str, Any]
Tool = tuple[Any, Any, Any]  # name, description, schema

NAMES = {
    "chat": r"[a-zA-Z0-9_-]{1,64}",
    "anthropic": r"[a-zA-Z0-9_-]{1,128}",
    "bedrock": r"[a-zA-Z0-9_-]{1,64}",
    "gateway": r"[a-zA-Z0-9_-]{1,64}",  # which sends a request on to any vendor
}
IDS = {
    "chat": r".{1,40}",  # "string too long. Expected a string with maximum length 40"
    "anthropic": r"[a-zA-Z0-9_-]+",
    "bedrock": r"[a-zA-Z0-9_-]{1,64}",
    "gateway": r"[a-zA-Z0-9_-]{1,40}",
}
PROPERTY_KEY = r"[a-zA-Z0-9_.-]{1,64}"
COMBINATORS = {"oneOf", "anyOf", "allOf"}
MAX_TOOLS = 128
MAX_DESCRIPTION = 1024  # of a function of Chat Completions
MAX_CACHE_POINTS = 4

# Strict servers refuse other fields of a message ("property 'reasoning_content' is unsupported").
CHAT_FIELDS = {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio"}
CHAT_CALL_FIELDS = {"id", "type", "function", "index"}
# "messages.1.content.0.tool_use.text: Extra inputs are not permitted"
BLOCK_FIELDS = {
    "text": {"text", "citations"},
    "image": {"source"},
    "document": {"source", "title", "context", "citations"},
    "tool_use": {"id", "name", "input", "caller"},
    "tool_result": {"tool_use_id", "content", "is_error"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
}
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
SOURCES = {"image": IMAGES, "document": ("application/pdf",)}
TEXTS = ("text/plain",)
# "The document file name can only contain alphanumeric characters, whitespace characters, hyphens,
# parentheses, and square brackets", without runs of white space.
DOCUMENT_NAME = r"(?!.*\s\s)[A-Za-z0-9\s()\[\]-]{1,200}"
STARTS = {
    "image/jpeg": b"\xff\xd8\xff",
    "image/png": b"\x89PNG\r\n",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
    "application/pdf": b"%PDF-",
}
REASONING = {"thinking", "redacted_thinking", "reasoningContent"}


def refusals(api: str, body: Json, *, model: str = "", own: Collection[str] = ()) -> list[str]:
    """Return the reasons for which a strict provider refuses this request.

    `api` is "chat" (Chat Completions), "anthropic" (Messages), "bedrock" (Converse) or "gateway"
    (Vercel AI Gateway). `model` is needed where the address names it. `own` are fields of a chat
    message that only this provider has, such as `reasoning_content`.
    """
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return ["lone surrogate"]
    if api == "gateway":
        body = {**body, "messages": _gateway_messages(body)}
    found = _in_conversation(body)
    if api == "chat":
        found += _in_chat(body, own)
    else:
        found += _in_blocks(api, body, model)
    return found + list(_in_tools(api, body))


def _in_conversation(body: Json) -> list[str]:
    system = ("system", "developer")
    messages = [m for m in body.get("messages") or [] if m["role"] not in system]
    if not messages:
        return ["no messages"]
    found = []
    if messages[0]["role"] != "user":
        found.append(f"the first message is of {messages[0]['role']}")
    # After `pause_turn` Anthropic documents to send the assistant's message back unchanged.
    if messages[-1]["role"] == "assistant" and "server_tool_use" not in json.dumps(messages[-1]):
        found.append("the last message is of the assistant")
    return found


def _in_chat(body: Json, own: Collection[str]) -> list[str]:
    found: list[str] = []
    pending: list[Any] = []
    seen: set[str] = set()
    previous = ""
    for i, message in enumerate(body["messages"]):
        role = message["role"]
        content = message.get("content")
        text = text_of(content)
        found += [f"{i}: {why}" for why in _in_chat_message(message, own)]
        if role in ("system", "developer"):
            if i > 0:
                found.append(f"{i}: a system message after the start")
            continue
        if role == "tool":
            if message.get("tool_call_id") in pending:
                pending.remove(message["tool_call_id"])
            else:
                found.append(f"{i}: orphaned tool result {message.get('tool_call_id')!r}")
            continue
        if pending:
            found.append(f"{i}: calls without a result {pending}")
            pending = []
        if role == "user":
            if not text.strip(BLANKS):
                found.append(f"{i}: empty user message")
            if previous == "user":
                found.append(f"{i}: user after user")
        elif role == "assistant":
            calls = message.get("tool_calls") or []
            if not calls and not text.strip(BLANKS):
                found.append(f"{i}: empty assistant message")
            # Without a result between them, two answers stand side by side.
            if previous == "assistant" and body["messages"][i - 1]["role"] == "assistant":
                found.append(f"{i}: assistant after assistant")
            pending = [call.get("id") for call in calls]
            for call_id in map(str, pending):
                if call_id in seen:
                    found.append(f"{i}: duplicate id {call_id!r}")
                seen.add(call_id)
            for call in calls:
                found += [f"{i}: {why}" for why in _in_chat_call(call, own)]
        previous = role
    if pending:
        found.append("calls without a result at the end")
    return found


def _in_chat_message(message: Json, own: Collection[str]) -> Iterator[str]:
    role = message["role"]
    if role not in ("system", "developer", "user", "assistant", "tool"):
        yield f"unknown role {role!r}"
    for field in sorted(message.keys() - CHAT_FIELDS - set(own)):
        yield f"property {field!r} is unsupported"
    if message.get("tool_calls") == []:
        yield "tool_calls is empty"
    content = message.get("content")
    if content is None and role != "assistant":
        yield "content is missing"
    if content == []:
        yield "[] is too short - 'content'"
    for part in content if isinstance(content, list) else []:
        if part.get("type") == "text" and not part["text"].strip(BLANKS):
            yield "blank text"
        image = (part.get("image_url") or {}).get("url", "data:image/png;")
        if not image.startswith(tuple(f"data:{media_type};" for media_type in IMAGES)):
            yield f"unsupported image: {image[:40]}"
        if role in ("assistant", "tool") and part.get("type") not in ("text", "refusal"):
            yield f"a part of type {part.get('type')!r} in a message of {role}"


def _in_chat_call(call: Json, own: Collection[str]) -> Iterator[str]:
    function = call.get("function") or {}
    for field in sorted(call.keys() - CHAT_CALL_FIELDS - set(own)):
        yield f"property {field!r} of a call is unsupported"
    if not isinstance(call.get("id"), str) or not re.fullmatch(IDS["chat"], call["id"]):
        yield f"bad id {call.get('id')!r}"
    if call.get("type") != "function":
        yield f"bad type of a call {call.get('type')!r}"
    if not re.fullmatch(NAMES["chat"], str(function.get("name"))):
        yield f"bad name {function.get('name')!r}"
    arguments = function.get("arguments")
    if not isinstance(arguments, str) or not is_object(arguments):
        yield f"arguments are no JSON object: {arguments!r}"


def is_object(text: str) -> bool:
    """Whether a text is one JSON object, by the specification: NaN is no JSON."""
    try:
        return isinstance(json.loads(text, parse_constant=_refuse_constant), dict)
    except ValueError:
        return False


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _in_blocks(api: str, body: Json, model: str) -> list[str]:
    """Check messages whose content is a list of blocks."""
    found = list(_in_settings(api, body))
    pending: list[Any] = []
    previous = ""
    seen: set[Any] = set()
    for i, message in enumerate(body["messages"]):
        role = message["role"]
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if role not in ("user", "assistant"):
            found.append(f"{i}: unknown role {role!r}")
        if role == previous:
            found.append(f"{i}: roles do not alternate")
        previous = role
        if not blocks:
            found.append(f"{i}: empty content")
        results: list[Any] = []
        calls: list[Any] = []
        kinds = []
        for n, block in enumerate(blocks):
            kind = _kind(block)
            kinds.append(kind)
            found += [f"{i}.{n}: {why}" for why in _in_block(api, kind, block, role, model)]
            if _is_of_vendor(block):
                continue
            if kind in ("tool_result", "toolResult"):
                result = block.get("toolResult") or block
                results.append(result.get("tool_use_id") or result.get("toolUseId"))
            if kind in ("tool_use", "toolUse"):
                use = block.get("toolUse") or block
                call_id = use.get("id") or use.get("toolUseId")
                calls.append(call_id)
                if call_id in seen:
                    found.append(f"{i}.{n}: duplicate id {call_id!r}")
                seen.add(call_id)
        if sorted(map(str, results)) != sorted(map(str, pending)):
            found.append(f"{i}: calls {pending} and results {results} differ")
        if api == "bedrock" and "document" in kinds and "text" not in kinds:
            found.append(f"{i}: a text block must be included when using documents")
        is_result = [kind in ("tool_result", "toolResult") for kind in kinds]
        if api == "anthropic" and is_result != sorted(is_result, reverse=True):
            found.append(f"{i}: tool_result blocks must come first")
        pending = calls
    if pending:
        found.append("calls without a result at the end")
    names = [
        block["document"]["name"]
        for message in body["messages"]
        for block in message["content"]
        if api == "bedrock" and "document" in block
    ]
    if len({*names}) < len(names):
        found.append("Duplicate document file names")
    if len(names) > 5:
        found.append("too many documents: at most 5 in a request")
    return found


def _is_of_vendor(block: Json) -> bool:
    """Whether Bedrock ran this call itself, or has this result of its own tool."""
    own = block.get("toolUse") or block.get("toolResult") or {}
    return own.get("type") is not None


def _kind(block: Json) -> str:
    keys = [key for key in block if key != "cache_control"]
    return str(block.get("type") or keys[0])


def _in_settings(api: str, body: Json) -> Iterator[str]:
    text = json.dumps(body)
    if text.count('"cache_control"') + text.count('"cachePoint"') > MAX_CACHE_POINTS:
        yield f"more than {MAX_CACHE_POINTS} cache points"
    if api == "anthropic":
        limit = body.get("max_tokens")
        if not isinstance(limit, int) or limit < 1:
            yield "max_tokens: Field required"
        thinking = body.get("thinking") or {}
        if thinking.get("type") == "enabled":
            budget = thinking.get("budget_tokens")
            if not isinstance(budget, int) or not 1024 <= budget < (limit or 0):
                yield "thinking.budget_tokens: at least 1024 and less than max_tokens"
    has_calls = re.search('"tool(Use|Result)"', text) is not None
    if api == "bedrock" and has_calls and not body.get("toolConfig"):
        yield "toolConfig must be set where messages have toolUse"
    system = body.get("system") or []
    for block in [{"text": system}] if isinstance(system, str) else system:
        if "text" in block and not block["text"].strip(BLANKS):
            yield "system: text content blocks must be non-empty"


def _in_block(api: str, kind: str, block: Json, role: str, model: str) -> Iterator[str]:
    if api == "bedrock" and len(block) != 1:
        yield f"exactly one member of a content block: {sorted(block)}"
    if api == "anthropic":
        extra = block.keys() - BLOCK_FIELDS.get(kind, block.keys()) - {"type", "cache_control"}
        for field in sorted(extra):
            yield f"{kind}.{field}: Extra inputs are not permitted"
    if kind == "text" and not block["text"].strip(BLANKS):
        yield "blank text"
    if kind in ("image", "document"):
        yield from _in_file(api, kind, block)
    if kind in ("tool_result", "toolResult"):
        result = block.get("toolResult") or block
        is_error = result.get("is_error") or result.get("status") == "error"
        if is_error and not result.get("content"):
            yield "the content of a failed tool result cannot be empty"
        if role != "user" and not _is_of_vendor(block):
            yield f"a tool result in a message of {role}"
    if kind in ("tool_use", "toolUse"):
        use = block.get("toolUse") or block
        call_id = use.get("id") or use.get("toolUseId")
        if not isinstance(call_id, str) or not re.fullmatch(IDS[api], call_id):
            yield f"bad id {call_id!r}"
        # Bedrock and most servers behind an Anthropic address take 64 characters.
        if not re.fullmatch(NAMES["bedrock"], str(use.get("name"))):
            yield f"bad name {use.get('name')!r}"
        if not isinstance(use.get("input"), dict):
            yield "input is no object"
        if role != "assistant":
            yield f"a call in a message of {role}"
    if kind in REASONING and role != "assistant":
        yield f"reasoning in a message of {role}"
    if kind == "thinking" and not block.get("signature"):
        yield "thinking.signature: Field required"
    if kind == "redacted_thinking" and not block.get("data"):
        yield "redacted_thinking.data: Field required"
    if kind == "reasoningContent" and (not model or "claude" in model):
        reasoning = block["reasoningContent"].get("reasoningText")
        if reasoning is not None and not reasoning.get("signature"):
            yield "reasoningText.signature: Field required"


def _in_file(api: str, kind: str, block: Json) -> Iterator[str]:
    if api == "anthropic":
        source = block["source"]
        types = TEXTS if source["type"] == "text" else SOURCES[kind]
        if source["media_type"] not in types:
            yield f"{kind}.source.media_type: Input should be one of {types}"
        if source["type"] == "base64":
            yield from _in_bytes(source["media_type"], source["data"])
    if api == "bedrock":
        file = block[kind]
        if kind == "document" and not re.fullmatch(DOCUMENT_NAME, file["name"]):
            yield f"the document file name has other characters: {file['name']!r}"
        formats = {"jpeg": "image/jpeg", "pdf": "application/pdf"}
        media_type = formats.get(file["format"], f"{kind}/{file['format']}")
        yield from _in_bytes(media_type, file["source"]["bytes"])


def _in_bytes(media_type: str, data: str) -> Iterator[str]:
    try:
        content = b64decode(data, validate=True)
    except ValueError:
        yield "the bytes of a file are not base64"
        return
    starts = STARTS.get(media_type)
    if starts is not None and not content.startswith(starts):
        # "The image was specified using the image/png media type, but appears to be a ..."
        yield f"the file does not appear to be {media_type}"


def _gateway_messages(body: Json) -> list[Json]:
    """Return the prompt of the gateway's protocol as messages with blocks."""
    messages = []
    for message in body.get("prompt") or []:
        role = message["role"]
        if role == "system":
            continue
        blocks = [_gateway_block(part) for part in message["content"]]
        messages.append({"role": "user" if role == "tool" else role, "content": blocks})
    return messages


def _gateway_block(part: Json) -> Json:
    if part["type"] == "tool-call":
        use = {"id": part["toolCallId"], "name": part["toolName"], "input": part["input"]}
        return {"type": "tool_use", **use}
    if part["type"] == "tool-result":
        return {"type": "tool_result", "tool_use_id": part["toolCallId"], "content": part["output"]}
    return dict(part)


def _in_tools(api: str, body: Json) -> Iterator[str]:
    if body.get("tools") == [] or (body.get("toolConfig") or {}).get("tools") == []:
        yield "[] is too short - 'tools' (empty_array)"
    holder = body.get("toolConfig") or {} if api == "bedrock" else body
    if not holder.get("tools"):
        for field in sorted({"tool_choice", "parallel_tool_calls", "toolChoice"} & holder.keys()):
            # The AI SDK's protocol of the gateway has a choice in each request.
            if api != "gateway":
                yield f"{field} is only allowed when tools are specified"
    tools = list(_tools(api, holder))
    if len(tools) > MAX_TOOLS:
        yield f"tools: array too long, {len(tools)} of {MAX_TOOLS}"
    names = [name for name, _, _ in tools]
    for name in sorted({str(name) for name in names if names.count(name) > 1}):
        yield f"tool names must be unique: {name!r}"
    for name, description, schema in tools:
        for why in _in_tool(api, name, description, schema):
            yield f"tool {name!r}: {why}"


def _tools(api: str, holder: Json) -> Iterator[Tool]:
    for tool in holder.get("tools") or []:
        if api == "bedrock":
            if spec := tool.get("toolSpec"):
                yield spec.get("name"), spec.get("description"), spec["inputSchema"].get("json", {})
        # A tool that the vendor runs has a type of its own and no schema.
        elif tool.get("type", "custom") in ("custom", "function"):
            function = tool.get("function") or tool
            names = ("parameters", "input_schema", "inputSchema")
            schema: Any = next((function[name] for name in names if name in function), {})
            yield function.get("name"), function.get("description"), schema


def _in_tool(api: str, name: Any, description: Any, schema: Any) -> Iterator[str]:
    if not re.fullmatch(NAMES[api], name or ""):
        yield "bad name"
    if api == "chat" and len(description or "") > MAX_DESCRIPTION:
        yield f"the description has more than {MAX_DESCRIPTION} characters"
    if api == "bedrock" and description is not None and not description:
        yield "the description is empty"
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield "the schema must be of type object"
        return
    if combinators := COMBINATORS & schema.keys():
        yield f"{sorted(combinators)} at the top level"
    if api in ("chat", "gateway"):
        if "properties" not in schema:
            yield "object schema missing properties"
        for path, part in _walk(schema):
            if part.get("type") == "array" and not {"items", "prefixItems"} & part.keys():
                yield f"array schema missing items at {'.'.join(path)}"
    if api != "chat":
        for path, part in _walk(schema):
            if isinstance(part.get("items"), list):
                yield f"JSON schema is invalid: it must match draft 2020-12, at {'.'.join(path)}"
        for key in schema.get("properties") or {}:
            if not re.fullmatch(PROPERTY_KEY, key):
                yield f"property keys should match pattern {PROPERTY_KEY!r}: {key!r}"


def _walk(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Yield each part of a schema with its path."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    named = ("properties", "$defs", "definitions", "patternProperties")
    nested = ("items", "additionalProperties", "anyOf", "oneOf", "allOf", "not", "prefixItems")
    for key, value in schema.items():
        if key in named and isinstance(value, dict):
            for name, part in value.items():
                yield from _walk(part, (*path, key, name))
        elif key in nested:
            for part in value if isinstance(value, list) else [value]:
                yield from _walk(part, (*path, key))


def text_of(content: Any) -> str:
    """Return the text of a message's content; an image of Chat Completions counts as text."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, dict):  # the output of a tool, in the gateway's protocol
        value = content.get("value")
        return value if isinstance(value, str) else json.dumps(value)
    texts = []
    for block in content:
        if isinstance(block, str):
            texts.append(block)
        elif isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif block.get("type") == "image_url":
            texts.append("(image)")
        elif block.get("type") == "tool_result" or "toolResult" in block:
            texts.append(text_of((block.get("toolResult") or block).get("content")))
    return "\n".join(texts)
