"""The wires of the vendors that speak something else than Chat Completions."""

import json
import struct
import zlib
from typing import Any, ClassVar

from tests.conformance.prompt_cache import Usage
from tests.conformance.wires import BLANKS, Entry, InvalidError, decode, parse_data_url


class Messages:
    """Anthropic's streaming Messages. One object serves one request."""

    api = "anthropic"
    path = "/v1/messages"
    content_type = "text/event-stream"
    reasons = {"stop": "end_turn", "tool": "tool_use", "length": "max_tokens", "filter": "refusal"}
    kinds: ClassVar[dict[str, str]] = {
        "overloaded": "overloaded_error",
        "limit": "rate_limit_error",
        "server": "api_error",
        "gateway": "timeout_error",
        "request": "invalid_request_error",
    }

    def __init__(self) -> None:
        self.index = -1
        self.is_open, self.tokens = False, Usage()

    def read(self, headers: dict[str, str], body: bytes) -> list[Entry]:
        if headers.get("x-api-key") != "test":
            raise InvalidError("no API key")
        request = json.loads(body)
        if request.get("stream") is not True or not request.get("max_tokens"):
            raise InvalidError("not a streaming request with a limit")
        return block_history(request["messages"], _read_messages_block)

    def start(self) -> bytes:
        tokens = self.tokens
        usage = {"input_tokens": tokens.plain, "output_tokens": 1}
        usage |= {"cache_read_input_tokens": tokens.read} if tokens.read else {}
        usage |= {"cache_creation_input_tokens": tokens.stored} if tokens.stored else {}
        message: dict[str, Any] = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "test-model",
        }
        message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        return self._event("message_start", {"message": message})

    def text(self, chunk: str) -> bytes:
        opening = b"" if self.is_open else self._open({"type": "text", "text": ""})
        return opening + self._delta({"type": "text_delta", "text": chunk})

    def call(self, number: int, call_id: str, name: str, arguments: str) -> bytes:  # noqa: ARG002
        opening = self._close() + self._open(
            {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        )
        middle = len(arguments) // 2
        halves = [arguments[:middle], arguments[middle:]]
        deltas = [self._delta({"type": "input_json_delta", "partial_json": h}) for h in halves]
        return opening + b"".join(deltas) + self._close()

    def finish(self, reason: str) -> bytes:
        delta = {"stop_reason": self.reasons.get(reason, reason), "stop_sequence": None}
        ending = self._event("message_delta", {"delta": delta, "usage": {"output_tokens": 1}})
        return self._close() + ending + self._event("message_stop", {})

    def think(self, text: str) -> bytes:
        block = {"type": "thinking", "thinking": "", "signature": ""}
        delta = self._delta({"type": "thinking_delta", "thinking": text})
        opening = self._open(block)
        return opening + delta + self._close()

    def error(self, message: str) -> bytes:
        return self.failure(message, "server")

    def failure(self, message: str, kind: str) -> bytes:
        return self._event("error", {"error": {"type": self.kinds[kind], "message": message}})

    def refusal(self, message: str, code: str | None) -> bytes:
        error = {"type": code or "error", "message": message}
        return json.dumps({"type": "error", "error": error}).encode()

    def refusal_in_stream(self, message: str, code: str | None) -> bytes:
        error = {"type": code or "invalid_request_error", "message": message}
        return self._event("error", {"error": error})

    def _open(self, block: dict[str, Any]) -> bytes:
        self.index, self.is_open = self.index + 1, True
        return self._event("content_block_start", {"index": self.index, "content_block": block})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return self._event("content_block_delta", {"index": self.index, "delta": delta})

    def _close(self) -> bytes:
        was_open, self.is_open = self.is_open, False
        return self._event("content_block_stop", {"index": self.index}) if was_open else b""

    def _event(self, kind: str, value: dict[str, Any]) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **value})}\n\n".encode()


class Converse:
    """Amazon Bedrock's ConverseStream, in frames of the AWS event stream."""

    api = "bedrock"
    path = r"/model/[^/]+/converse-stream"
    content_type = "application/vnd.amazon.eventstream"
    reasons = {
        "stop": "end_turn",
        "tool": "tool_use",
        "length": "max_tokens",
        "filter": "content_filtered",
    }
    kinds: ClassVar[dict[str, str]] = {
        "overloaded": "serviceUnavailableException",
        "limit": "throttlingException",
        "server": "internalServerException",
        "gateway": "serviceUnavailableException",
        "request": "validationException",
    }
    trace: dict[str, Any] | None = None  # of a guardrail

    def __init__(self) -> None:
        self.index = 0
        self.is_open, self.tokens = False, Usage()

    def read(self, headers: dict[str, str], body: bytes) -> list[Entry]:
        if "authorization" not in headers:
            raise InvalidError("no signature")
        return block_history(json.loads(body)["messages"], _read_converse_block)

    def start(self) -> bytes:
        return frame("messageStart", {"role": "assistant"})

    def text(self, chunk: str) -> bytes:
        self.is_open = True
        return self._delta({"text": chunk})

    def call(self, number: int, call_id: str, name: str, arguments: str) -> bytes:  # noqa: ARG002
        closing = self._close()
        tool = {"toolUse": {"toolUseId": call_id, "name": name}}
        self.is_open = True
        opening = frame("contentBlockStart", {"start": tool, "contentBlockIndex": self.index})
        middle = len(arguments) // 2
        halves = [arguments[:middle], arguments[middle:]]
        deltas = [self._delta({"toolUse": {"input": half}}) for half in halves if half]
        return closing + opening + b"".join(deltas) + self._close()

    def finish(self, reason: str) -> bytes:
        tokens = self.tokens
        usage = {"inputTokens": tokens.plain, "outputTokens": 1, "totalTokens": tokens.total + 1}
        usage |= {"cacheReadInputTokens": tokens.read, "cacheWriteInputTokens": tokens.stored}
        trace = {"trace": {"guardrail": self.trace}} if self.trace else {}
        metadata = frame("metadata", {"usage": usage, "metrics": {"latencyMs": 1}, **trace})
        stop = frame("messageStop", {"stopReason": self.reasons.get(reason, reason)})
        return self._close() + stop + metadata

    def think(self, text: str) -> bytes:
        return self._delta({"reasoningContent": {"text": text}}) + self._close(always=True)

    def error(self, message: str) -> bytes:
        return self.failure(message, "server")

    def failure(self, message: str, kind: str) -> bytes:
        return frame(self.kinds[kind], {"message": message}, kind="exception")

    def refusal(self, message: str, code: str | None) -> bytes:
        return json.dumps({"__type": code or "ModelErrorException", "message": message}).encode()

    def refusal_in_stream(self, message: str, code: str | None) -> bytes:
        return frame(code or "validationException", {"message": message}, kind="exception")

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return frame("contentBlockDelta", {"delta": delta, "contentBlockIndex": self.index})

    def _close(self, *, always: bool = False) -> bytes:
        if not (self.is_open or always):
            return b""
        self.is_open, self.index = False, self.index + 1
        return frame("contentBlockStop", {"contentBlockIndex": self.index - 1})


class Gateway:
    """Vercel AI Gateway's language model, version 4 of its protocol."""

    api = "gateway"
    path = "/v4/ai/language-model"
    content_type = "text/event-stream"
    reasons = {
        "stop": "stop",
        "tool": "tool-calls",
        "length": "length",
        "filter": "content-filter",
        "new": "other",
    }
    kinds: ClassVar[dict[str, tuple[str, int]]] = {
        "overloaded": ("internal_server_error", 529),
        "limit": ("rate_limit_exceeded", 429),
        "server": ("internal_server_error", 500),
        "gateway": ("response_error", 502),
        "request": ("invalid_request_error", 400),
    }

    def __init__(self) -> None:
        self.is_open, self.tokens = False, Usage()

    def read(self, headers: dict[str, str], body: bytes) -> list[Entry]:
        if headers.get("authorization") != "Bearer test":
            raise InvalidError("no API key")
        prompt = json.loads(body)["prompt"]
        _require(prompt[0]["role"] == "system", "no system prompt")
        messages = [
            {**message, "role": "user" if message["role"] == "tool" else message["role"]}
            for message in prompt[1:]
        ]
        return block_history(messages, _read_gateway_block)

    def start(self) -> bytes:
        return self._part("stream-start", {"warnings": []})

    def text(self, chunk: str) -> bytes:
        opening = b"" if self.is_open else self._part("text-start", {"id": "0"})
        self.is_open = True
        return opening + self._part("text-delta", {"id": "0", "delta": chunk})

    def call(self, number: int, call_id: str, name: str, arguments: str) -> bytes:  # noqa: ARG002
        opening = self._close() + self._part("tool-input-start", {"id": call_id, "toolName": name})
        middle = len(arguments) // 2
        halves = [arguments[:middle], arguments[middle:]]
        deltas = [self._part("tool-input-delta", {"id": call_id, "delta": h}) for h in halves]
        call = {"toolCallId": call_id, "toolName": name, "input": arguments}
        ending = self._part("tool-input-end", {"id": call_id}) + self._part("tool-call", call)
        return opening + b"".join(deltas) + ending

    def finish(self, reason: str) -> bytes:
        usage = {"inputTokens": {"total": self.tokens.total}, "outputTokens": {"total": 1}}
        unified = self.reasons.get(reason, reason)
        finish = {"finishReason": {"unified": unified, "raw": reason}, "usage": usage}
        return self._close() + self._part("finish", finish) + b"data: [DONE]\n\n"

    def think(self, text: str) -> bytes:
        start = self._part("reasoning-start", {"id": "r"})
        delta = self._part("reasoning-delta", {"id": "r", "delta": text})
        return start + delta + self._part("reasoning-end", {"id": "r"})

    def error(self, message: str) -> bytes:
        return self._part("error", {"error": {"message": message}})

    def failure(self, message: str, kind: str) -> bytes:
        type, status = self.kinds[kind]
        error = {"message": message, "type": type, "statusCode": status}
        return self._part("error", {"error": error})

    def refusal(self, message: str, code: str | None) -> bytes:
        return json.dumps({"error": {"message": message, "type": code or "error"}}).encode()

    def refusal_in_stream(self, message: str, code: str | None) -> bytes:
        return self._part("error", {"error": {"message": message, "type": code or "error"}})

    def _close(self) -> bytes:
        was_open, self.is_open = self.is_open, False
        return self._part("text-end", {"id": "0"}) if was_open else b""

    def _part(self, kind: str, value: dict[str, Any]) -> bytes:
        return b"data: " + json.dumps({"type": kind, **value}).encode() + b"\n\n"


def frame(name: str, value: dict[str, Any], kind: str = "event") -> bytes:
    """One message of the AWS event stream: lengths, headers, payload, and two checksums."""
    headers = {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
    head = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(text)) + text.encode()
        for key, text in headers.items()
    )
    payload = json.dumps(value).encode()
    prelude = struct.pack(">II", len(head) + len(payload) + 16, len(head))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + payload
    return message + struct.pack(">I", zlib.crc32(message))


def block_history(messages: list[dict[str, Any]], read: Any) -> list[Entry]:
    """Check the order of messages whose content is a list of blocks, and flatten them."""
    history: list[Entry] = []
    open_calls: list[str] = []
    before = "assistant"
    for message in messages:
        _require(message["role"] != before, f"two {before} messages in a row")
        before = message["role"]
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        _require(bool(blocks), "a message without content")
        _require(before == "user" or not open_calls, "a tool call without its result")
        for block in blocks:
            if "cachePoint" in block:
                continue
            role, call_id, *rest = read(block)
            if role == "text":
                _require(bool(rest[0].strip(BLANKS)), "an empty text")
                if block is not blocks[0] and history[-1][0] == before:  # texts of one message
                    rest[0] = history.pop()[1] + rest[0]
                history.append((before, rest[0]))
            elif role == "file":
                at = len(history) - (block is not blocks[0] and history[-1][0] == before)
                history.insert(at, ("file", *rest))  # before the text, as in Chat Completions
            elif role == "call":
                open_calls.append(call_id)
                history.append(("call", *rest))
            elif role == "result":
                _require(call_id in open_calls, "an orphan tool result")
                open_calls.remove(call_id)
                history.append(("result", *rest))
        _require(before == "assistant" or not open_calls, "a tool call without its result")
    _require(before == "user", "the last message is not a user's")
    return history


def _read_messages_block(block: dict[str, Any]) -> Entry:
    if block["type"] in ("image", "document"):
        source = block["source"]
        data = source["data"]
        content = data.encode() if source["type"] == "text" else decode(data)
        return ("file", "", source["media_type"], content)
    if block["type"] == "tool_use":
        return ("call", block["id"], block["name"], block["input"])
    if block["type"] == "tool_result":
        content = block["content"]
        parts = [content] if isinstance(content, str) else [it.get("text", "") for it in content]
        return ("result", block["tool_use_id"], "".join(parts))
    return ("text", "", block["text"])


DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
# The formats of Converse that an agent can send.
CONVERSE_TYPES = {
    "image": {kind: f"image/{kind}" for kind in ("png", "jpeg", "gif", "webp")},
    "document": {
        "pdf": "application/pdf",
        "docx": DOCX,
        "txt": "text/plain",
        "csv": "text/csv",
        "md": "text/markdown",
    },
}


def _read_converse_block(block: dict[str, Any]) -> Entry:
    for kind in ("image", "document"):
        if file := block.get(kind):
            media_type = CONVERSE_TYPES[kind].get(file["format"])
            _require(media_type is not None, f"{kind}: unknown format {file['format']}")
            return ("file", "", media_type, decode(file["source"]["bytes"]))
    if tool := block.get("toolUse"):
        return ("call", tool["toolUseId"], tool["name"], tool["input"])
    if result := block.get("toolResult"):
        parts = [part.get("text", "") for part in result["content"]]
        return ("result", result["toolUseId"], "".join(parts))
    return ("text", "", block["text"])


def _read_gateway_block(block: dict[str, Any]) -> Entry:
    if block["type"] == "file":
        data = block["data"]
        if isinstance(data, dict):
            data = data["data"]
        content = parse_data_url(data)[1] if data.startswith("data:") else decode(data)
        return ("file", "", block["mediaType"], content)
    if block["type"] == "tool-call":
        return ("call", block["toolCallId"], block["toolName"], block["input"])
    if block["type"] == "tool-result":
        value = block["output"]["value"]
        return ("result", block["toolCallId"], value if isinstance(value, str) else str(value))
    return ("text", "", block["text"])


def _require(condition: bool, rule: str) -> None:
    if not condition:
        raise InvalidError(rule)
