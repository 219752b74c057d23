"""What a provider speaks. A wire reads a request into a neutral history and writes parts as bytes.

A neutral history is a flat list: ("user", text), ("assistant", text), ("call", name, arguments),
("result", text), ("file", media type, bytes). Scripts and tests never see a wire, so a new one is
one more class in `WIRES`.
"""

import json
import re
from base64 import b64decode
from typing import Any, ClassVar, Protocol

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
    def think(self, text: str) -> bytes: ...
    def error(self, message: str) -> bytes: ...
    def failure(self, message: str, kind: str) -> bytes: ...
    def refusal(self, message: str, code: str | None) -> bytes: ...
    def refusal_in_stream(self, message: str, code: str | None) -> bytes: ...


class ChatCompletions:
    """OpenAI's streaming Chat Completions. One object serves one request."""

    api = "chat"
    path = "/v1/chat/completions"
    content_type = "text/event-stream"
    reasons = {"stop": "stop", "tool": "tool_calls", "length": "length", "filter": "content_filter"}
    kinds: ClassVar[dict[str, tuple[str, str | int | None]]] = {
        "overloaded": ("service_unavailable_error", "server_is_overloaded"),
        "limit": ("tokens", "rate_limit_exceeded"),
        "server": ("server_error", None),
        "gateway": ("error", 502),  # as OpenRouter sends it
        "request": ("invalid_request_error", "invalid_prompt"),
    }

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

    def think(self, text: str) -> bytes:
        return self._chunk({"reasoning_content": text})

    def error(self, message: str) -> bytes:
        return self.failure(message, "server")

    def failure(self, message: str, kind: str) -> bytes:
        type, code = self.kinds[kind]
        return self._data({"error": {"message": message, "type": type, "code": code}})

    def refusal(self, message: str, code: str | None) -> bytes:
        return json.dumps({"error": {"message": message, "type": "error", "code": code}}).encode()

    def refusal_in_stream(self, message: str, code: str | None) -> bytes:
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
        files = _files(message.get("content"))
        if role == "tool":
            _require(message.get("tool_call_id") in open_calls, "an orphan tool result")
            open_calls.remove(message["tool_call_id"])
            history.append(("result", text))
        elif role == "user":
            # Strands shows the image of a tool result as the user's.
            is_image = before == "tool" and text == "" and files != []
            _require(is_image or before in ("start", "assistant"), f"a user message after {before}")
            _require(not open_calls, "a tool call without its result")
            _require(is_image or bool(text.strip(BLANKS)), "an empty user message")
            history += [("file", *file) for file in files]
            if text:
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
        if part.get("type") in ("image_url", "file"):
            continue
        _require(part.get("type") == "text", f"a part that is not text: {part.get('type')!r}")
        _require(bool(part["text"].strip(BLANKS)), "an empty part")
        texts.append(part["text"])
    return "".join(texts)


def _files(content: Any) -> list[tuple[str, bytes]]:
    """The media types and the bytes of the files of a message."""
    files = []
    for part in content if isinstance(content, list) else []:
        if part.get("type") == "image_url":
            files.append(parse_data_url(part["image_url"]["url"]))
        if part.get("type") == "file":
            _require(bool(part["file"].get("filename")), "a file without a name")
            files.append(parse_data_url(part["file"]["file_data"]))
    return files


def parse_data_url(url: str) -> tuple[str, bytes]:
    """The media type and the bytes of a data URL."""
    found = re.fullmatch(r"data:([\w/.+-]+);base64,([A-Za-z0-9+/]+={0,2})", url)
    if not found:
        raise InvalidError(f"not a data URL: {url[:40]}")
    return found[1], decode(found[2])


def decode(data: str) -> bytes:
    """The bytes of standard base64, as vendors read it."""
    try:
        return b64decode(data, validate=True)
    except ValueError:
        raise InvalidError("a file that is not base64") from None


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
