"""Rewrites the responses of Chat Completions servers as the strict stream that clients expect.

Servers frame events, number tool calls and end answers in different ways. `event_hooks` rewrites
the bytes of an answer before a client parses them. A broken stream keeps no finish reason, and the
arguments of tool calls are unchanged.
"""

import asyncio
import json
import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

from ..contract import AgentError
from ..settings import CoreSettings
from . import provider

LINE_END = re.compile("\r\n|\n|\r")
JSON_MARK = re.compile(r'\\.?|["{}]', re.DOTALL)  # also matches escaped characters
SURROGATE = re.compile("[\ud800-\udfff]")
# Matches only a field of a request: JSON strings contain escaped quotes.
STREAMED = re.compile(rb'"stream"\s*:\s*true')

# Finish reasons of servers, in lower case, by their equivalent in Chat Completions.
REASON_SYNONYMS = {
    "": "none not_finished null",
    "stop": "complete completed done end end_of_text end_turn eos eos_found eos_token finished "
    "normal stop stop_sequence stop_str stop_token",
    "tool_calls": "function_call function_calls tool_call tool_calls tool_use",
    "length": "context_length error_limit length max_length max_new_tokens max_output_tokens "
    "max_tokens model_context_window_exceeded model_length token_limit truncated",
    "content_filter": "blocklist content_filter content_filtered error_toxic "
    "guardrail_intervened image_safety prohibited_content recitation refusal safety sensitive spii",
}
REASONS = {word: reason for reason, words in REASON_SYNONYMS.items() for word in words.split()}

# The names of a call's arguments; Chat Completions defines the first.
ARGUMENTS = ("arguments", "parameters", "input")
STRUCTURE = {"type", "format", "index", "id"}  # in each part of `reasoning_details`

PIECE_SIZE = 4_096  # bytes that the client parses at a time

NO_ANSWER = "The response is not in the format of Chat Completions."
MIXED = "The server mixed the arguments of its tool calls."

Json = dict[str, Any]


def event_hooks(settings: CoreSettings) -> dict[str, Any]:
    """Return the event hooks of `provider`, and a hook that makes streamed answers strict."""

    async def rewrite(response: Any) -> None:
        request = response.request
        is_chat = request.url.path.endswith("/chat/completions")
        if response.status_code != 200 or not is_chat or not STREAMED.search(request.content):
            return
        read = response.aiter_bytes
        stream = ChatStream(settings)

        async def strict(chunk_size: int | None = None) -> Any:
            async for data in read(chunk_size):
                for start in range(0, len(data), PIECE_SIZE):
                    yield stream.read(data[start : start + PIECE_SIZE])
                    # Let other requests run: the client parses all received bytes at once.
                    await asyncio.sleep(0)
            yield stream.end()

        response.aiter_bytes = strict
        response.headers["content-type"] = "text/event-stream"

    hooks = provider.event_hooks(settings)
    return {**hooks, "response": [*hooks["response"], rewrite]}


def with_raw_messages(request: Json) -> Json:
    """Return a request whose messages the client sends without validation.

    Validating the messages of a thousand tool calls blocks all requests for 0.2 seconds.
    """
    body = {**(request.get("extra_body") or {}), "messages": request["messages"]}
    return {**request, "messages": [], "extra_body": body}


class ChatStream:
    """A streamed answer: `read` and `end` return the bytes for the client.

    Both raise AgentError for an event over the limit, and if reasoning and
    arguments of tool calls together exceed it.
    """

    def __init__(self, settings: CoreSettings) -> None:
        self._events = EventReader(6 * settings.max_reply_bytes + 65_536)
        self._answer = Answer(settings.max_reply_bytes)

    def read(self, data: bytes) -> bytes:
        """Return the chunks that `data` completes."""
        return self._rewrite(self._events.read(data))

    def end(self) -> bytes:
        """Return the remaining chunks after the end of the response."""
        return self._rewrite(self._events.end()) + encode(self._answer.end())

    def _rewrite(self, events: Iterator[tuple[str, str]]) -> bytes:
        return b"".join(encode(self._answer.read(name, data)) for name, data in events)


class EventReader:
    """Parses Server-Sent Events; a JSON body is a single event with the name `body`."""

    def __init__(self, max_size: int) -> None:
        self._decoder = getincrementaldecoder("utf-8-sig")("replace")
        self._max_size = max_size
        self._is_json: bool | None = None
        self._after_return = False
        # The parts of the current line, and the fields of the current event.
        self._line: list[str] = []
        self._line_size = 0
        self._data: list[str] = []
        self._data_size = 0
        self._name = ""

    def read(self, data: bytes) -> Iterator[tuple[str, str]]:
        """Yield the name and data of each event that `data` completes."""
        return self._read(self._decoder.decode(data))

    def end(self) -> Iterator[tuple[str, str]]:
        """Yield the last event, which may lack its final empty line."""
        yield from self._read(self._decoder.decode(b"", True))
        if self._is_json:
            yield "body", "".join(self._line)
        else:
            yield from self._read("\n\n")

    def _read(self, text: str) -> Iterator[tuple[str, str]]:
        if self._is_json is None and text.strip():
            self._is_json = text.lstrip().startswith("{")
        if self._after_return and text:
            self._after_return = False
            text = text.removeprefix("\n")
        *lines, rest = [text] if self._is_json else LINE_END.split(text)
        if lines and not rest:
            self._after_return = text.endswith("\r")
        for line in lines:
            self._line.append(line)
            yield from self._end_of_line("".join(self._line))
            self._line.clear()
            self._line_size = 0
        self._line.append(rest)
        self._line_size += len(rest)
        if self._line_size + self._data_size > self._max_size:
            raise AgentError("reply_incomplete", detail="MAX_REPLY_BYTES")

    def _end_of_line(self, line: str) -> Iterator[tuple[str, str]]:
        if not line:
            if self._data:
                yield self._name, "\n".join(self._data)
            self._data = []
            self._data_size = 0
            self._name = ""
            return
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._data_size += len(value) + 1
        elif name == "event":
            self._name = value


class Answer:
    """Converts the events of an answer to strict chunks.

    Yields the finish reason and the usage once, at the end.
    """

    def __init__(self, max_size: int) -> None:
        self._size = SizeLimit(max_size)  # of text that clients keep until the end
        self._calls = ToolCalls(self._size)
        self._base: Json = {}
        self._reason: str | None = None
        self._usage: Json | None = None
        self._has_deltas = False
        self._has_ended = False

    def read(self, name: str, data: str) -> Iterator[Json | None]:
        """Yield the strict chunks of an event; None ends the stream."""
        if self._has_ended or not data.strip():
            return
        if data.strip().startswith("[DONE]"):
            yield from self._finish()
            return
        chunk = parse(data)
        error = failure(chunk, name)
        if error:
            self._has_ended = True
            yield {"error": error}
            return
        yield from self._strict(chunk, name == "body")
        if name == "body":
            yield from self._finish()

    def end(self) -> Iterator[Json | None]:
        """Yield the last chunks, unless the stream broke."""
        if self._has_ended:
            return
        if self._reason:
            yield from self._finish()
        elif not self._base:
            yield {"error": {"message": NO_ANSWER}}

    def _strict(self, chunk: Json, is_body: bool) -> Iterator[Json]:
        self._base = {
            "id": text_or(chunk.get("id"), "chatcmpl"),
            "object": "chat.completion.chunk",
            "created": chunk["created"] if is_number(chunk.get("created")) else 0,
            "model": text_or(chunk.get("model"), ""),
        }
        chunk.update(self._base)
        choice = first_choice(chunk)
        usages = chunk.pop("usage", None), (choice or {}).pop("usage", None)
        usage = strict_usage(usages[0]) or strict_usage(usages[1])
        self._usage = usage or self._usage
        if choice is None:
            chunk["choices"] = []
            if not usage:
                yield chunk
            return
        reason = meaning(choice.get("finish_reason"))
        if reason and self._reason in (None, "stop", "tool_calls"):
            self._reason = reason
        delta = self._delta(choice, is_body)
        choice.update(index=0, delta=delta, finish_reason=None)
        if not isinstance(choice.get("logprobs"), dict):
            choice.pop("logprobs", None)
        chunk["choices"] = [choice]
        if delta or not reason:
            yield chunk

    def _delta(self, choice: Json, is_body: bool) -> Json:
        message = choice.pop("message", None)
        delta = choice.get("delta")
        if isinstance(delta, dict) and (delta.get("content") or delta.get("tool_calls")):
            self._has_deltas = True
        elif not delta and not self._has_deltas:  # otherwise it repeats the deltas
            delta = message
        if not isinstance(delta, dict):
            return {}
        if "role" in delta:
            delta["role"] = "assistant"
        self._size.add(reasoning_in(delta))
        content = delta.get("content")
        if not isinstance(content, str | None):
            delta["content"] = text_of(content)
        legacy = delta.pop("function_call", None)
        calls = delta.pop("tool_calls", None)
        if not calls and isinstance(legacy, dict):
            calls = [{"index": 0, "function": legacy}]
        if calls:
            parts = self._calls.read(calls if isinstance(calls, list) else [calls], is_body)
            if parts:
                delta["tool_calls"] = parts
        if not are_citations(delta.get("annotations")):
            delta.pop("annotations", None)
        return delta

    def _finish(self) -> Iterator[Json | None]:
        self._has_ended = True
        if self._calls.are_mixed():
            yield {"error": {"message": MIXED}}
            return
        base = self._base or {
            "id": "chatcmpl",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "",
        }
        nameless = self._calls.end()
        delta = {"tool_calls": nameless} if nameless else {}
        reason = self._reason
        if reason in (None, "stop", "tool_calls"):
            reason = "tool_calls" if self._calls else "stop"
        yield {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        if self._usage:
            yield {**base, "choices": [], "usage": self._usage}
        yield None


class SizeLimit:
    """Counts characters. `add` raises AgentError over the limit."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._size = 0

    def add(self, text: str) -> None:
        """Count the characters of a text."""
        self._size += len(text)
        if self._size > self._max_size:
            raise AgentError("reply_incomplete", detail="MAX_REPLY_BYTES")


class JsonObject:
    """Finds the end of a JSON object in parts; reads each part once."""

    def __init__(self) -> None:
        self.is_whole = False  # only white space follows the last brace
        self._has_ended = False
        self._count = 0  # of parts already read
        self._depth = 0
        self._is_in_string = False
        self._rest = ""  # a backslash at the end of a part

    def read(self, parts: list[str]) -> None:
        """Read the parts added since the last call."""
        for text in parts[self._count :]:
            if self._has_ended:
                self.is_whole = self.is_whole and not text.strip()
            else:
                self._read(self._rest + text)
        self._count = len(parts)

    def _read(self, text: str) -> None:
        self._rest = ""
        for found in JSON_MARK.finditer(text):
            mark = found[0]
            if mark == "\\":
                self._rest = mark
            elif mark == '"':
                self._is_in_string = not self._is_in_string
            elif not self._is_in_string and mark in {"{", "}"}:
                self._depth += 1 if mark == "{" else -1
                if self._depth <= 0:
                    self._has_ended = True
                    self.is_whole = not text[found.end() :].strip()
                    return


@dataclass
class Call:
    """A tool call, accumulated from its parts."""

    index: int
    id: str
    # Whether an earlier call has the same index.
    shares_index: bool
    server_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    object: JsonObject = field(default_factory=JsonObject)
    # Further fields of a call that is unsent because it has no name yet.
    fields: Json = field(default_factory=dict)
    is_sent: bool = False

    def is_whole(self) -> bool:
        """Return whether the arguments are a non-empty object; some servers send `{}` first."""
        self.object.read(self.arguments)
        value = parse("".join(self.arguments)) if self.object.is_whole else None
        return isinstance(value, dict) and bool(value)


class ToolCalls:
    """The tool calls of an answer, each with a unique index and id.

    Some servers omit these, or repeat them in different calls.
    """

    def __init__(self, size: SizeLimit) -> None:
        self._calls: list[Call] = []
        self._ids: set[str] = set()
        # By the server's names: an index, and an index with an id.
        self._latest: dict[int | None, Call] = {}
        self._known: dict[tuple[int | None, str], Call] = {}
        self._size = size

    def __len__(self) -> int:
        return len(self._calls)

    def read(self, parts: list[Any], is_body: bool) -> list[Json]:
        """Convert the parts of a delta, or the calls of a body, to strict parts."""
        strict = list[Json]()
        seen = set[int]()
        for part in parts:
            if not isinstance(part, dict):
                continue
            function = part.pop("function", None)
            if not isinstance(function, dict):
                function = {key: part.pop(key, None) for key in ("name", *ARGUMENTS)}
            name = function.pop("name", None)
            name = name if isinstance(name, str) else ""
            values = [function.pop(key, None) for key in ARGUMENTS]
            value = next((value for value in values if value is not None), None)
            arguments = text_of_arguments(value)
            self._size.add(arguments)
            index = index_of(part.pop("index", None))
            server_id = text_or(part.pop("id", None), "")
            part.pop("type", None)
            call = None if is_body else self._find(index, server_id, name, arguments)
            if not (call or name or server_id or arguments):
                continue
            # A delta has at most one part of a call.
            if call is None or (name and call.index in seen):
                call = self._add(index, server_id)
            seen.add(call.index)
            if server_id and not call.server_id:
                self._name(call, index, server_id)
            call.arguments.append(arguments)
            call.name = call.name or name
            if call.is_sent:
                function["arguments"] = arguments
                strict.append({**part, "index": call.index, "function": function})
                continue
            call.fields |= part
            if call.name:
                strict.append(first_part(call, function))
        return strict

    def end(self) -> list[Json]:
        """Return the calls that have no name."""
        return [first_part(call, {}) for call in self._calls if not call.is_sent]

    def are_mixed(self) -> bool:
        """Return whether calls with a shared index may have mixed their arguments."""
        texts = ["".join(call.arguments) for call in self._calls]
        if all(text.strip() for text in texts):
            return False
        return any(
            call.shares_index and len(call.arguments) > 1 and not isinstance(parse(text), dict)
            for call, text in zip(self._calls, texts, strict=True)
        )

    def _find(self, index: int | None, server_id: str, name: str, arguments: str) -> Call | None:
        """Return the call that a part continues, or None if it begins one."""
        same = self._known.get((index, server_id)) if server_id else None
        # Without a name and an id, a part continues the last call.
        is_named = name or server_id or index in self._latest
        call = same or self._latest.get(index if is_named else None)
        if call is None or (name and call.name and name != call.name):
            return None
        if same or not (server_id or name):
            return call
        if server_id and call.server_id:
            return None
        # A late id or a repeated name continues a call, unless its arguments are complete.
        return None if name and arguments.strip() and call.is_whole() else call

    def _add(self, index: int | None, server_id: str) -> Call:
        is_new = server_id and server_id not in self._ids
        # All providers accept an id of nine letters and digits.
        id = server_id if is_new else token_hex(5)[:9]
        call = Call(len(self._calls), id, shares_index=index in self._latest)
        self._calls.append(call)
        self._ids.add(call.id)
        self._latest[index] = self._latest[None] = call
        return call

    def _name(self, call: Call, index: int | None, server_id: str) -> None:
        call.server_id = server_id
        self._known[index, server_id] = self._known[None, server_id] = call


def first_part(call: Call, function: Json) -> Json:
    """Return the first part of a call, with all its known fields."""
    call.is_sent = True
    function = {**function, "name": call.name, "arguments": "".join(call.arguments)}
    fields = {"index": call.index, "id": call.id, "type": "function", "function": function}
    return {**call.fields, **fields}


def encode(chunks: Iterable[Json | None]) -> bytes:
    """Encode chunks as events. An unpaired surrogate becomes U+FFFD, which clients can send."""
    texts = [
        "[DONE]" if chunk is None else json.dumps(chunk, ensure_ascii=False) for chunk in chunks
    ]
    events = "".join(f"data: {text}\n\n" for text in texts)
    return SURROGATE.sub("\ufffd", events).encode()


def parse(data: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def failure(chunk: Any, name: str) -> Json | None:
    """Return the error in an event or a body, or None."""
    if not isinstance(chunk, dict):
        return {"message": NO_ANSWER}
    error = chunk.pop("error", None) or (first_choice(chunk) or {}).get("error")
    if not error and (name == "error" or chunk.get("object") == "error"):
        error = chunk
    if error:
        fields = error if isinstance(error, dict) else {"message": error}
        message = fields.get("message")
        return {**fields, "message": message if isinstance(message, str) else NO_ANSWER}
    return {"message": NO_ANSWER} if name == "body" and not chunk.get("choices") else None


def first_choice(chunk: Json) -> Json | None:
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict) and not index_of(choice.get("index")):
            return choice
    return None


def index_of(value: Any) -> int | None:
    """Return a whole number, also from text, or None."""
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value):
        return int(value)
    is_whole = is_number(value) and value % 1 == 0
    return int(value) if is_whole else None


def meaning(reason: Any) -> str | None:
    """Return the finish reason of Chat Completions; keep an unknown reason."""
    if not isinstance(reason, str):
        return None
    word = reason.lower().partition(":")[0].strip().replace("-", "_")
    return REASONS.get(word.removeprefix("finish_reason_"), reason) or None


def text_of(content: Any) -> str | None:
    """Return the text of content that is not a string, without thinking.

    Mistral sends thinking in this form, and rejects it under the names of other vendors.
    """
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str)) or None


def strict_usage(usage: Any) -> Json | None:
    """Return usage with all counts, or None."""
    if not isinstance(usage, dict) or not usage:
        return None
    for key in ("prompt_tokens", "completion_tokens"):
        usage[key] = usage[key] if is_number(usage.get(key)) else 0
    if not is_number(usage.get("total_tokens")):
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    for key in ("prompt_tokens_details", "completion_tokens_details"):
        details = usage.pop(key, None)
        if isinstance(details, dict):
            usage[key] = {name: count or 0 for name, count in details.items()}
    return usage


def text_of_arguments(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    if arguments is None:
        return ""
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def reasoning_in(delta: Json) -> str:
    """Return the longest reasoning in a delta: servers repeat the text in several fields."""
    texts = [text_of_arguments(delta.get(name)) for name in ("reasoning", "reasoning_content")]
    details = delta.get("reasoning_details")
    parts = details if isinstance(details, list) else [details]
    texts.append("".join(map(text_of_detail, parts)))
    return max(texts, key=len)


def visible_reasoning(delta: Json) -> str:
    """Return the readable reasoning in a delta; encrypted parts are not readable."""
    texts = [delta.get("reasoning"), delta.get("reasoning_content")]
    details = delta.get("reasoning_details")
    details = details if isinstance(details, list) else [details]
    parts = [part for part in details if isinstance(part, dict)]
    texts.append("".join(str(part.get("text") or part.get("summary") or "") for part in parts))
    return max((text for text in texts if isinstance(text, str)), key=len, default="")


def text_of_detail(detail: Any) -> str:
    """Return the values of a detail, without its structure fields."""
    if not isinstance(detail, dict):
        return text_of_arguments(detail)
    values = [value for name, value in detail.items() if name not in STRUCTURE]
    return "".join(map(text_of_arguments, values))


def are_citations(annotations: Any) -> bool:
    """Return whether all have OpenAI's fields; clients reject a chunk with other annotations."""
    if not isinstance(annotations, list):
        return False
    for annotation in annotations:
        citation = annotation.get("url_citation") if isinstance(annotation, dict) else None
        if not isinstance(citation, dict) or annotation.get("type") != "url_citation":
            return False
        has_place = is_number(citation.get("start_index")) and is_number(citation.get("end_index"))
        has_names = isinstance(citation.get("url"), str) and isinstance(citation.get("title"), str)
        if not (has_place and has_names):
            return False
    return True


def text_or(value: Any, default: str) -> str:
    """Return a text, a whole number as text, or the default."""
    if isinstance(value, str):
        return value or default
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else default


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
