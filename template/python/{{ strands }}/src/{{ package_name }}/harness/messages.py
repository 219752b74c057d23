"""Repairs a model's answers before their calls run, and checks the messages of a turn."""

import json
import logging
import re
import secrets
from base64 import urlsafe_b64decode
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from contextlib import suppress
from copy import deepcopy
from hashlib import sha256
from typing import Any, cast

from strands import Agent
from strands.hooks import AfterModelCallEvent, AfterToolsEvent, BeforeToolsEvent, HookOrder
from strands.middleware import InvokeModelStage
from strands.models import Model
from strands.telemetry.tracer import Tracer
from strands.types.events import ModelStopReason

from .contract import AgentError, is_blank, well_formed, well_formed_value
from .echo_model import OfflineModel
from .file_parts import media_types_in, sendable
from .models.context_length import CuttableResult, Shortening, cut_result, cut_texts
from .models.rejected_files import AcceptedTypes
from .settings import CoreSettings
from .tool_schemas import (
    CALL_ID,
    INVALID_ARGUMENTS,
    MAX_QUOTED_CHARS,
    TOO_MANY,
    parse_arguments,
    valid_call_name,
)

# Replaces the parts of a call until the call is complete.
PLACEHOLDER: Any = {}

log = logging.getLogger(__name__)


class Messages(list[Any]):
    """A list of messages with a fast deep copy, because the SDK copies it for each model call.

    A copy shares no mutable values with the original.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> "Messages":
        return Messages(map(_copy, self))


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {name: _copy(item) for name, item in value.items()}
    if kind is list:
        return [_copy(item) for item in value]
    return value if kind in {str, int, float, bool, bytes, type(None)} else deepcopy(value)


def decode(data: dict[str, Any]) -> None:
    """Decode the base64 data in a stored session: media and encrypted reasoning."""
    pending = data.get("interrupt_state", {}).get("pending_tool_execution") or {}
    waiting = [pending["assistant_message"]] if pending else []
    for message in [*data["messages"], *waiting, *pending.get("completed_tool_results", [])]:
        decode_content(message["content"])


def decode_content(content: list[Any]) -> None:
    """Decode the base64 data in the blocks of a message."""
    for block in content:
        for kind, value in block.items():
            if kind == "toolResult":
                decode_content(value["content"])
            elif kind in {"audio", "document", "image", "reasoningContent", "video"}:
                holder = value.get("source", value)
                name = "bytes" if "source" in value else "redactedContent"
                with suppress(ValueError):  # keep invalid base64
                    if isinstance(holder.get(name), str):
                        holder[name] = urlsafe_b64decode(holder[name])


# The SDK serializes all messages twice per model call, even without recorded spans. Without this
# patch, a turn takes 14 % longer at 40 messages, and 40 % longer at 400. An SDK without this
# private name keeps its own behavior.
_add_messages: Any = getattr(Tracer, "_add_event_messages", None)


def _add_if_recorded(tracer: Tracer, span: Any, messages: Any) -> None:
    if span.is_recording():
        _add_messages(tracer, span, messages)


if _add_messages:
    Tracer._add_event_messages = _add_if_recorded  # type: ignore[assignment,method-assign]


class Repairs:
    """Repairs the answers of an agent's model.

    Calls with an invalid name, with arguments that are not a JSON object, or above MAX_TOOL_CALLS
    get an error result; no hook, intervention or tool sees them. A model call that is rejected for
    its length or its files is repeated with a shorter request, or with notes instead of the files.
    """

    def __init__(
        self,
        agent: Agent,
        settings: CoreSettings,
        shortening: Shortening,
        accepted: AcceptedTypes,
    ) -> None:
        self._agent = agent
        self._settings = settings
        self._shortening = shortening
        self._accepted = accepted
        self._count = 0  # calls in the answer
        self._has_begun = False  # whether the model has sent content
        self._ids = set[str]()  # call ids in the session
        self._raw = dict[str, str]()  # invalid arguments by call id
        self._errors = dict[str, str]()  # results of rejected calls by call id
        self._answer: Any = None
        self._mark = dict[str, Any]()
        self._names = list[tuple[Any, str]]()
        agent.add_middleware(InvokeModelStage, self._call_model)
        agent.hooks.add_callback(AfterModelCallEvent, self._set_mark, order=HookOrder.SDK_FIRST)
        agent.hooks.add_callback(BeforeToolsEvent, self._hide_rejected, order=HookOrder.SDK_LAST)
        agent.hooks.add_callback(AfterToolsEvent, self._set_results, order=HookOrder.SDK_FIRST)

    async def _call_model(self, context: Any, run: Any) -> AsyncGenerator[Any, None]:
        producer = producer_of(context.model)
        messages = context.messages
        model = cast(Model, _RepairedModel(context.model, self))
        while True:
            self._ids = {use["toolUseId"] for m in messages for use in _uses(m)}
            self._raw = {}
            self._errors = {}
            self._count = 0
            self._has_begun = False
            sent: Any = to_send(messages, producer)
            if not isinstance(context.model, OfflineModel):  # which reads files itself
                sent = sendable(sent, self._accepted.types)
            try:
                async for event in run(context.replace(model=model, messages=sent)):
                    is_end = isinstance(event, ModelStopReason)
                    yield self._end(event, producer) if is_end else event
            except Exception as error:
                if self._has_begun:
                    raise
                if not self._accepted.reduce(error, media_types_in(sent)):
                    messages = await self._shorten(error, messages)
            else:
                return

    async def _shorten(self, error: Exception, messages: list[Any]) -> list[Any]:
        """Return messages for a shorter request, and store them in the agent.

        Re-raises the error if it has another reason.
        """
        stored = self._agent.messages
        start = len(self._shortening.history)
        await self._shortening.shorten(error, results_in(stored[start:]))
        history = Messages(self._shortening.history)
        stored[:start] = history
        turn_messages = Messages(messages[start:])  # may include memories
        contents = {
            result["toolUseId"]: result["content"] for result in _results(stored[len(history) :])
        }
        for result in _results(turn_messages):
            result["content"] = deepcopy(contents.get(result["toolUseId"], result["content"]))
        return Messages([*deepcopy(history), *turn_messages])

    async def repair(self, chunks: AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
        """Yield the chunks of an answer; a tool call follows when it is complete."""
        call: _Call | None = None
        without_arguments = set[Any]()  # indexes of blocks
        is_providers = False  # whether the provider runs the call of this block
        try:
            async for chunk in chunks:
                if not chunk.keys().isdisjoint({"contentBlockStart", "contentBlockDelta"}):
                    self._has_begun = True
                start = chunk.get("contentBlockStart", {}).get("start", {}).get("toolUse")
                index = _index_of(chunk)
                delta = chunk.get("contentBlockDelta", {}).get("delta", {}).get("toolUse")
                if is_providers and (delta is not None or "contentBlockStop" in chunk):
                    is_providers = delta is not None
                    continue
                is_providers = bool(start) and start.get("type") == "server_tool_use"
                if is_providers:
                    continue
                ends = call is not None and chunk.keys().isdisjoint({"metadata", "messageStart"})
                if call is not None and ends and delta is None:
                    if start and is_blank(call.raw):  # its arguments may follow
                        raise AgentError("model_failed", detail="a call has no end")
                    for part in self._repair_call(call):
                        yield part
                    if call.index is not None and is_blank(call.raw):
                        without_arguments.add(call.index)
                    call = None
                    if "contentBlockStop" in chunk:
                        continue
                if start:
                    if index in without_arguments:  # its arguments may be mixed with these
                        raise AgentError("model_failed", detail="two calls have one index")
                    call = _Call(start, index)
                    yield PLACEHOLDER
                elif delta is not None:
                    if call is not None and call.index in {None, index}:
                        call.add(delta, self._settings.max_reply_bytes)
                    elif delta.get("input"):
                        raise AgentError("model_failed", detail="arguments outside of a call")
                else:
                    yield chunk
        finally:
            if close := getattr(chunks, "aclose", None):
                await close()

    def _repair_call(self, call: "_Call") -> list[Any]:
        """Return the chunks of a call with a valid id, name and input."""
        id = self._new_id(call.id)
        raw = call.raw
        value = parse_arguments(call.raw)
        name = call.name if isinstance(call.name, str) else str(call.name or "")
        tool = valid_call_name(name)
        if value is None:
            self._raw[id] = well_formed(raw)[:MAX_QUOTED_CHARS]
            self._errors[id] = INVALID_ARGUMENTS + self._raw[id]
        if tool != name:
            self._errors[id] = f"Unknown tool: {tool}"
        self._count += 1
        if self._count > self._settings.max_tool_calls:
            self._errors[id] = TOO_MANY.format(self._settings.max_tool_calls)
        use = {"name": tool, "toolUseId": id}
        return [
            {"contentBlockStart": {"start": {"toolUse": use}}},
            {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(value or {})}}}},
            {"contentBlockStop": {}},
        ]

    def _new_id(self, id: Any) -> str:
        """Return a valid and unique call id."""
        valid = id if isinstance(id, str) and re.fullmatch(CALL_ID, id) else ""
        while not valid or valid in self._ids:
            valid = secrets.token_hex(5)[:9]  # Mistral requires nine letters and digits
        self._ids.add(valid)
        return valid

    def _end(self, event: ModelStopReason, producer: str) -> ModelStopReason:
        """Return the end of an answer with the message to store."""
        reason, message, usage, metrics = event["stop"]
        content = list(_to_store(message["content"]))
        has_calls = any("toolUse" in block for block in content)
        if reason == "tool_use" and not has_calls:  # otherwise the SDK would call the model again
            if not any("text" in block for block in content):
                raise AgentError("empty_reply", detail="tool_use without a call")
            reason = "end_turn"
        self._answer = {**message, "content": content}
        self._mark = {"producer": producer} if has_calls else {}
        if self._raw:
            self._mark["refused"] = self._raw
        return ModelStopReason(
            stop_reason=reason, message=self._answer, usage=usage, metrics=metrics
        )

    def _set_mark(self, event: AfterModelCallEvent) -> None:
        message: Any = event.stop_response.message if event.stop_response else None
        if message is not None and message is self._answer and self._mark:
            message["metadata"]["custom"] = self._mark

    def _hide_rejected(self, event: BeforeToolsEvent) -> None:
        """Hide the names of rejected calls, so that the SDK does not run them."""
        self._names = []
        max_calls = self._settings.max_tool_calls
        if self._count > max_calls:
            log.warning("model: %d calls in one step, at most %d run", self._count, max_calls)
        for number, use in enumerate(_uses(event.message)):
            if use["toolUseId"] in self._errors:
                id = use["toolUseId"]
                name = use["name"]
                self._names.append((use, name))
                use["name"] = ""
                if number >= max_calls:
                    continue
                is_invalid = self._errors[id].startswith(INVALID_ARGUMENTS)
                is_tool = name in event.agent.tool_names and is_invalid
                # Do not log invented names.
                tool = name if is_tool else "that does not exist"
                why = "arguments are not one JSON object" if id in self._raw else "invalid name"
                log.warning("tool %s: %s", tool, why)

    def _set_results(self, event: AfterToolsEvent) -> None:
        for use, name in self._names:
            use["name"] = name
        for result in _results([event.message]):
            result["content"] = cut(
                well_formed_value(result["content"]), self._settings.max_result_chars
            )
            if error := self._errors.get(result["toolUseId"]):
                result["content"] = [{"text": error}]


def cut(content: list[Any], max_chars: int) -> list[Any]:
    """Cut the texts of a tool's result to `max_chars` characters in total."""
    texts = [_as_text(block) for block in content]
    shorter = cut_texts(texts, max_chars)
    if shorter == texts:
        return content
    blocks = list[Any]()
    for block, text, short in zip(content, texts, shorter, strict=True):
        if not text:  # such as an image
            blocks.append(block)
        elif short:
            blocks.append({"text": short})
    return blocks


def _as_text(block: Any) -> str:
    if "json" in block:
        return json.dumps(block["json"], ensure_ascii=False, default=str)
    return str(block.get("text", ""))


def _index_of(chunk: dict[str, Any]) -> int | None:
    """Return the index of a chunk's block, or None."""
    block = chunk.get("contentBlockStart") or chunk.get("contentBlockDelta") or {}
    index: int | None = block.get("contentBlockIndex")
    return index


class _RepairedModel:
    """A model with repaired answers."""

    def __init__(self, model: Model, repairs: Repairs) -> None:
        self._model = model
        self._repairs = repairs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        return self._repairs.repair(self._model.stream(*args, **kwargs))


class _Call:
    """A tool call from its parts."""

    def __init__(self, start: dict[str, Any], index: int | None) -> None:
        self.id = start.get("toolUseId")
        self.name = start.get("name")
        self.index = index
        self._input = start.get("input")
        self._parts = list[str]()
        self._size = 0

    def add(self, delta: dict[str, Any], max_bytes: int) -> None:
        """Add a part. Raises `reply_incomplete` above `max_bytes`."""
        part = delta.get("input") or ""
        self._parts.append(part if isinstance(part, str) else json.dumps(part))
        self._size += len(self._parts[-1].encode(errors="replace"))
        if self._size > max_bytes:
            raise AgentError("reply_incomplete", detail="MAX_REPLY_BYTES")

    @property
    def raw(self) -> str:
        """The arguments as text. Anthropic may send all of them at the start.

        Different arguments at the start and later become invalid JSON.
        """
        text = "".join(self._parts)
        if self._input in (None, "", {}):
            return text
        first = json.dumps(self._input)
        return first if is_blank(text) or parse_arguments(text) == self._input else first + text


def producer_of(model: Any) -> str:
    """Return the class and the id of a model, the only reader of its reasoning."""
    return f"{type(model).__name__} {model.get_config().get('model_id')}"


def refused(message: Any) -> dict[str, str]:
    """Return the invalid arguments of a message's calls by call id."""
    custom = (message.get("metadata") or {}).get("custom") or {}
    return cast(dict[str, str], custom.get("refused") or {})


def call_of(interrupt_id: str) -> str:
    """Return the id of the interrupted call, as in `v1:tool_call:ID:UUID`."""
    return ":".join(interrupt_id.split(":")[2:-1])


def _uses(message: Any) -> list[Any]:
    return [block["toolUse"] for block in message["content"] if "toolUse" in block]


def _results(messages: Iterable[Any]) -> list[Any]:
    return [
        block["toolResult"]
        for message in messages
        for block in message["content"]
        if "toolResult" in block
    ]


def results_in(messages: Iterable[Any]) -> list[CuttableResult]:
    """Return the results in messages; `cut` changes the messages."""
    return [*map(_as_cuttable, _results(messages))]


def _as_cuttable(result: Any) -> CuttableResult:
    others = [part for part in result["content"] if part.keys().isdisjoint({"text", "json"})]
    texts = [
        part["text"] if "text" in part else json.dumps(part["json"], default=str)
        for part in result["content"]
        if part not in others
    ]
    text = "\n".join(texts)

    def cut(size: int) -> None:
        result["content"] = [{"text": cut_result(text, size)}, *others]

    return CuttableResult(len(text), cut)


def _to_store(content: Iterable[Any]) -> Iterable[Any]:
    """Yield the blocks of an answer to store; every vendor accepts them."""
    blocks = list(content)
    has_calls = any("toolUse" in block for block in blocks)
    for block in _with_plain_text(blocks):
        if "reasoningContent" in block:
            reasoning = block["reasoningContent"]
            is_sealed = "redactedContent" in reasoning
            # Anthropic rejects reasoning without a signature, and other vendors ignore it.
            if has_calls and (is_sealed or reasoning.get("reasoningText", {}).get("signature")):
                yield block
        elif "text" not in block or not is_blank(block["text"]):
            yield block


def _with_plain_text(blocks: Iterable[Any]) -> Iterable[Any]:
    for block in blocks:
        if "citationsContent" in block:
            parts = block["citationsContent"].get("content", [])
            yield {"text": well_formed("".join(part.get("text", "") for part in parts))}
        elif "text" in block:
            yield {**block, "text": well_formed(block["text"] or "")}
        else:
            yield block


def to_send(messages: Iterable[Any], producer: str) -> Messages:
    """Return messages that a model accepts, even if an older version stored them."""
    used_ids = set[str]()
    request = Messages()
    ids = defaultdict[str, list[str]](list)  # of the next results, by stored id
    for number, message in enumerate(messages):
        is_answer = message["role"] == "assistant"
        custom = (message.get("metadata") or {}).get("custom") or {}
        is_own = custom.get("producer") == producer
        if is_answer:
            ids.clear()
        content = []
        for block in _with_plain_text(message["content"]):
            if "reasoningContent" in block and not is_own:
                continue
            if is_answer and "text" in block and is_blank(block["text"]):
                continue
            if use := block.get("toolUse"):
                old = str(use["toolUseId"])
                arguments = use["input"]
                new = old if re.fullmatch(CALL_ID, old) and old not in used_ids else ""
                new = new or sha256(f"{number} {len(used_ids)} {old}".encode()).hexdigest()[:9]
                used_ids.add(new)
                ids[old].append(new)
                arguments = well_formed_value(arguments) if isinstance(arguments, dict) else {}
                content.append({"toolUse": {**use, "toolUseId": new, "input": arguments}})
            elif result := block.get("toolResult"):
                new_ids = ids[str(result["toolUseId"])]
                new = new_ids.pop(0) if new_ids else str(result["toolUseId"])
                content.append({"toolResult": {**result, "toolUseId": new}})
            else:
                content.append(block)
        if content:
            request.append({**message, "content": content})
    return merge(request)


def merge(messages: Iterable[Any]) -> Messages:
    """Merge consecutive messages of the same role."""
    merged = Messages()
    for message in messages:
        if merged and merged[-1]["role"] == message["role"]:
            content = [*merged[-1]["content"], *message["content"]]
            merged[-1] = {**merged[-1], "content": content}
        else:
            merged.append(message)
    return merged


def check_messages(messages: list[Any], waits: bool = False) -> None:
    """Raise `model_failed` unless every vendor accepts the messages of a turn.

    If `waits`, the last calls may have no results.
    """
    calls = list[str]()
    used_ids = set[str]()
    for number, message in enumerate(messages):
        content = message["content"]
        if message["role"] != ("assistant" if number % 2 else "user"):
            _fail("the roles do not alternate")
        if not content:
            _fail("a message is empty")
        if any("text" in block and is_blank(block["text"]) for block in content):
            _fail("a text is blank")
        results = [block["toolResult"]["toolUseId"] for block in content if "toolResult" in block]
        if sorted(results) != sorted(calls):
            _fail("calls and results differ")
        calls = [use["toolUseId"] for use in _uses(message)]
        if calls and not number % 2:
            _fail("a call is not from the model")
        if len({*calls}) < len(calls) or used_ids & {*calls}:
            _fail("two calls have the same id")
        used_ids |= {*calls}
        try:
            json.dumps(content, ensure_ascii=False, default=_as_json).encode()
        except UnicodeEncodeError:
            _fail("a text is not well formed")
    if not messages or len(messages) % 2 or (calls and not waits):
        _fail("the turn has no end")


def _as_json(value: object) -> str:
    return "" if isinstance(value, bytes) else repr(value)  # of a file


def _fail(detail: str) -> None:
    raise AgentError("model_failed", detail=detail)
