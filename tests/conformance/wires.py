"""What a provider speaks. A wire reads a request into a neutral history and writes parts as bytes.

A neutral history is a flat list: ("user", text), ("assistant", text), ("call", name, arguments),
("result", text). Scripts and tests never see a wire, so a new one is one more class in `WIRES`.
"""

import json
from typing import Any, Protocol

from tests.conformance.prompt_cache import Usage

Entry = tuple[Any, ...]
# Unicode's White_Space and U+FEFF, written out: languages disagree about what strip() takes off.
BLANKS = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B)))
BLANKS += "\u2028\u2029\u202f\u205f\u3000\ufeff"
DETAIL = "provider-detail"  # stands in every error of the provider; no caller may ever see it


class InvalidError(Exception):
    """The request breaks a rule that a strict provider has."""


class Wire(Protocol):
    api: str  # as `refusals` calls it
    path: str
    content_type: str
    tokens: Usage  # of the input

    def read(self, headers: dict[str, str], body: bytes) -> list[Entry]: ...
    def start(self) -> bytes: ...
    def text(self, chunk: str) -> bytes: ...
    def call(self, number: int, call_id: str, name: str, arguments: str) -> bytes: ...
    def finish(self, reason: str) -> bytes: ...
    def error(self, message: str) -> bytes: ...
    def refusal(self, message: str, code: str | None) -> bytes: ...
    def failure(self, message: str, code: str | None) -> bytes: ...


class ChatCompletions:
    """OpenAI's streaming Chat Completions. One object serves one request."""

    api = "chat"
    path = "/v1/chat/completions"
    content_type = "text/event-stream"
    reasons = {"stop": "stop", "tool": "tool_calls", "length": "length", "filter": "content_filter"}

    def __init__(self) -> None:
        self.usage, self.tokens = False, Usage()

    def read(self, headers: dict[str, str], body: bytes) -> list[Entry]:
        if headers.get("authorization") != "Bearer test":
            raise InvalidError("no API key")
        try:
            request = json.loads(body.decode("utf-8"))
            json.dumps(request, ensure_ascii=False).encode("utf-8")
        except ValueError:
            raise InvalidError("not JSON in UTF-8, or a lone surrogate") from None
        if request.get("stream") is not True or not request.get("model"):
            raise InvalidError("not a streaming request to a model")
        self.usage = bool((request.get("stream_options") or {}).get("include_usage"))
        return chat_history(request.get("messages") or [])

    def start(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, chunk: str) -> bytes:
        return self._chunk({"content": chunk})

    def call(self, number: int, call_id: str, name: str, arguments: str) -> bytes:
        middle = len(arguments) // 2
        first = {"name": name, "arguments": arguments[:middle]}
        head = {"index": number, "id": call_id, "type": "function", "function": first}
        tail = {"index": number, "function": {"arguments": arguments[middle:]}}
        return self._chunk({"tool_calls": [head]}) + self._chunk({"tool_calls": [tail]})

    def finish(self, reason: str) -> bytes:
        end = self._chunk({}, self.reasons.get(reason, reason))
        if self.usage:
            total, cached = self.tokens.total, {"cached_tokens": self.tokens.read}
            usage: dict[str, Any] = {"prompt_tokens": total, "completion_tokens": 1}
            usage |= {"total_tokens": total + 1}
            usage |= {"prompt_tokens_details": cached} if self.tokens.read else {}
            end += self._data({**self._frame(), "choices": [], "usage": usage})
        return end + b"data: [DONE]\n\n"

    def error(self, message: str) -> bytes:
        return self._data({"error": {"message": message, "type": "server_error", "code": None}})

    def refusal(self, message: str, code: str | None) -> bytes:
        return json.dumps({"error": {"message": message, "type": "error", "code": code}}).encode()

    def failure(self, message: str, code: str | None) -> bytes:
        error = {"message": message, "type": "invalid_request_error", "code": code}
        return self._data({"error": error})

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return self._data({**self._frame(), "choices": [choice]})

    def _frame(self) -> dict[str, Any]:
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "test-model",
        }

    def _data(self, value: dict[str, Any]) -> bytes:
        return b"data: " + json.dumps(value).encode() + b"\n\n"


def chat_history(messages: list[dict[str, Any]]) -> list[Entry]:
    """Check the order of Chat Completions messages and flatten them."""
    history: list[Entry] = []
    open_calls: list[str] = []
    before = "start"
    for message in messages:
        role = message.get("role")
        if role in ("system", "developer"):
            _require(before == "start", "a system message after the start")
            continue
        text = _text(message.get("content"))
        if role == "tool":
            _require(message.get("tool_call_id") in open_calls, "an orphan tool result")
            open_calls.remove(message["tool_call_id"])
            history.append(("result", text))
        elif role == "user":
            # Strands shows the image of a tool result as the user's.
            is_image = before == "tool" and text.startswith("(data:")
            _require(is_image or before in ("start", "assistant"), f"a user message after {before}")
            _require(not open_calls, "a tool call without its result")
            _require(bool(text.strip(BLANKS)), "an empty user message")
            history.append(("user", text))
        elif role == "assistant":
            _require(before in ("user", "tool"), f"an assistant message after {before}")
            _require(not open_calls, "a tool call without its result")
            calls = message.get("tool_calls") or []
            _require(bool(text.strip(BLANKS)) or bool(calls), "an empty assistant message")
            if text:
                history.append(("assistant", text))
            for call in calls:
                _require(call["id"] not in open_calls, "two tool calls with one id")
                open_calls.append(call["id"])
                function = call["function"]
                history.append(("call", function["name"], _arguments(function["arguments"])))
        else:
            raise InvalidError(f"an unknown role {role!r}")
        before = role
    _require(not open_calls, "a tool call without its result")
    _require(before in ("user", "tool"), "the last message is neither a user's nor a tool's")
    return history


def _text(content: Any) -> str:
    """The text of a message; a list of parts must have parts, and each part text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    _require(isinstance(content, list) and bool(content), "content without parts")
    texts = []
    for part in content:
        if part.get("type") == "image_url":
            texts.append(f"({part['image_url']['url']})")
            continue
        _require(part.get("type") == "text", f"a part that is not text: {part.get('type')!r}")
        _require(bool(part["text"].strip(BLANKS)), "an empty part")
        texts.append(part["text"])
    return "".join(texts)


def _arguments(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        raise InvalidError("tool arguments that are not JSON") from None
    _require(isinstance(value, dict), "tool arguments that are not an object")
    return value


def _require(condition: bool, rule: str) -> None:
    if not condition:
        raise InvalidError(rule)
