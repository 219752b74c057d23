"""Repairs a model's answers before their calls run, and checks the messages of a turn.

A call without a JSON object as arguments never runs. The session stores it with the input `{}` and
an error result, which every provider accepts; `provider_metadata` keeps the received text.
"""

import hashlib
import json
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import ai

from .contract import AgentError, is_blank, well_formed, well_formed_value
from .file_parts import with_texts
from .models.context_length import CuttableResult, cut_result, cut_texts
from .tool_schemas import (
    CALL_ID,
    INVALID_ARGUMENTS,
    MAX_QUOTED_CHARS,
    NAME,
    TOO_MANY,
    parse_arguments,
    valid_call_name,
)

log = logging.getLogger(__name__)
Message = ai.messages.Message
CallPart = ai.messages.ToolCallPart
ResultPart = ai.messages.ToolResultPart

SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)  # an escape in JSON
METADATA_KEY = "app"  # this module's key in `provider_metadata`


def repair(
    message: Message, history: Sequence[Message], tools: Collection[str], max_calls: int
) -> list[CallPart]:
    """Repair an answer so that every provider accepts it, and return its calls.

    At most `max_calls` calls run. Logs rejected calls.
    """
    calls = message.tool_calls
    parts = list[Any]()
    for part in message.parts:
        if part.kind == "text":
            part.text = well_formed(part.text)
            part.provider_metadata = None
            if not is_blank(part.text):
                parts.append(part)
        elif part.kind != "reasoning":
            parts.append(part)
        elif calls:  # the next answer needs it
            part.text = well_formed(part.text)
            parts.append(part)
    message.parts = parts
    if not calls:
        message.provider_metadata = None
    ids = {call.tool_call_id for earlier in history for call in earlier.tool_calls}
    if len(calls) > max_calls:
        log.warning("model: %d calls in one step, at most %d run", len(calls), max_calls)
    for number, call in enumerate(calls):
        _repair_id(call, ids)
        _repair_name(call)
        _repair_arguments(call)
        if number >= max_calls:
            _set_metadata(call, "refused", TOO_MANY.format(max_calls))
        elif refusal(call):
            name = call.tool_name
            is_tool = name in tools and not invented_name(call)
            tool = name if is_tool else "that does not exist"
            log.warning("tool %s: arguments are not one JSON object", tool)
    return calls


def refusal(call: CallPart) -> str:
    """Return the error result of a rejected call, or "" for a valid call.

    A call is rejected if its arguments are invalid or if the step has too many calls.
    """
    metadata = _metadata(call)
    if "refused" in metadata:
        return str(metadata["refused"])
    return "" if "received" not in metadata else INVALID_ARGUMENTS + metadata["received"]


def invented_name(call: CallPart) -> str:
    """Return the invalid name that the model sent, or ""."""
    return str(_metadata(call).get("name", ""))


def input_of(call: CallPart) -> Any:
    """Return the arguments of a call, or the invalid text that the model sent."""
    received = _metadata(call).get("received")
    if received is not None:
        return received
    try:
        return json.loads(call.tool_args)
    except ValueError:  # stored by an older version
        return call.tool_args


def bounded(part: ResultPart, max_chars: int) -> ResultPart:
    """Return a tool's result with well-formed texts, cut to `max_chars` characters."""
    copy = part.model_copy(update={"result": _cut(well_formed_value(part.result), max_chars)})
    if part.has_model_input:
        copy.set_model_input(_cut(well_formed_value(part.model_input), max_chars))
    return copy


def _cut(value: Any, max_chars: int) -> Any:
    if not isinstance(value, ai.messages.ContentOutput):
        text = value if isinstance(value, str) else _as_text(value)
        (short,) = cut_texts([text], max_chars)
        return value if short == text else short
    texts = [part.text if part.kind == "text" else "" for part in value.value]
    shorter = cut_texts(texts, max_chars)
    if shorter == texts:
        return value
    parts = list[Any]()
    for part, short in zip(value.value, shorter, strict=True):
        if part.kind != "text":
            parts.append(part)
        elif short:
            parts.append(part.model_copy(update={"text": short}))
    return value.model_copy(update={"value": parts})


def _as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def mark(event: ai.events.Event, model: ai.Model) -> ai.events.Event:
    """Add the model's name to the end of its answer, for `shown_to`."""
    if not isinstance(event, ai.events.StreamEnd):
        return event
    metadata = {**(event.provider_metadata or {}), METADATA_KEY: {"model": _name_of(model)}}
    return event.model_copy(update={"provider_metadata": metadata})


def shown_to(model: ai.Model, messages: Iterable[Message]) -> list[Message]:
    """Return messages without the reasoning of other models, and with text files as text."""
    own = (_without_reasoning(message, _name_of(model)) for message in messages)
    return with_texts(own)


def _without_reasoning(message: Message, model: str) -> Message:
    if message.role != "assistant" or _metadata(message).get("model") == model:
        return message
    parts = [
        part.model_copy(update={"provider_metadata": None})
        for part in message.parts
        if part.kind in {"text", "tool_call", "file"}
    ]
    return message.model_copy(update={"parts": parts, "provider_metadata": None})


def mend_stored(messages: list[Message]) -> list[Message]:
    """Give stored messages ids, names and arguments that every provider accepts; return them.

    Older versions stored them without repairs.
    """
    for message in messages:
        if message.tool_calls or message.tool_results:
            message.parts = [*map(_mend_part, message.parts)]
    return messages


def _mend_part(part: Any) -> Any:
    if not isinstance(part, CallPart | ResultPart):
        return part
    id = part.tool_call_id
    name = part.tool_name
    if not re.fullmatch(CALL_ID, id):
        id = hashlib.sha256(id.encode(errors="replace")).hexdigest()[:9]
    part = part.model_copy(update={"tool_call_id": id, "tool_name": valid_call_name(name)})
    if isinstance(part, CallPart) and SURROGATE.search(part.tool_args):
        _repair_arguments(part)
    return part


def results_in(messages: Iterable[Message]) -> list[CuttableResult]:
    """Return the results in messages; `cut` changes the messages."""
    return [
        _as_cuttable(message, place, part)
        for message in messages
        for place, part in enumerate(message.parts)
        if isinstance(part, ResultPart)
    ]


def _as_cuttable(message: Message, place: int, part: ResultPart) -> CuttableResult:
    value = part.get_model_input()
    others = list[Any]()
    if isinstance(value, ai.messages.ContentOutput):
        others = [it for it in value.value if not isinstance(it, ai.messages.TextPart)]
        texts = [it.text for it in value.value if isinstance(it, ai.messages.TextPart)]
        text = "\n".join(texts)
    else:
        text = value if isinstance(value, str) else json.dumps(value, default=str)

    def cut(size: int) -> None:
        shorter: Any = cut_result(text, size)
        kind = "error" if part.is_error else "json"
        if others:
            text_part = ai.messages.TextPart(text=shorter)
            shorter = ai.messages.ContentOutput(value=[text_part, *others])
            kind = "special"
        update = {"result": shorter, "result_kind": kind}
        update |= {"model_input": shorter, "model_input_kind": "special" if others else "json"}
        message.parts[place] = part.model_copy(update=update)

    return CuttableResult(len(text), cut)


def check_messages(messages: Sequence[Message], start: int, *, waits: bool) -> None:
    """Raise `model_failed` unless every provider accepts the messages from `start` on.

    If `waits`, the last calls must have no results.
    """
    if violation := next(_violations(messages, start, waits=waits), None):
        raise AgentError("model_failed", detail=violation)


def _violations(messages: Sequence[Message], start: int, *, waits: bool) -> Iterator[str]:
    used_ids = {call.tool_call_id for message in messages[:start] for call in message.tool_calls}
    previous_role = "assistant"
    open_calls = list[str]()
    new_messages = messages[start:]
    for message in new_messages:
        role = "assistant" if message.role == "assistant" else "user"
        if role == previous_role:
            yield f"two messages from the {role} in a row"
        previous_role = role
        if not message.parts:
            yield "an empty message"
        if any(part.kind == "text" and is_blank(part.text) for part in message.parts):
            yield "a blank text"
        if sorted(part.tool_call_id for part in message.tool_results) != sorted(open_calls):
            yield "calls and results differ"
        open_calls = [call.tool_call_id for call in message.tool_calls]
        for id in open_calls:
            if id in used_ids:
                yield "two calls with the same id"
            used_ids.add(id)
        text = json.dumps(_dump_parts(message), ensure_ascii=False, default=_as_json)
        if text != well_formed(text):
            yield "a lone surrogate"
    if not new_messages or previous_role != "assistant":
        yield "the last message is not from the assistant"
    if bool(open_calls) != waits:
        yield "calls without results"


def _as_json(value: object) -> str:
    return "" if isinstance(value, bytes) else str(value)  # of a file


def _dump_parts(message: Message) -> Any:
    return message.model_dump(mode="python", include={"parts"}, exclude_none=True)


def _repair_id(call: CallPart, used_ids: set[str]) -> None:
    id = call.tool_call_id
    while id in used_ids or not re.fullmatch(CALL_ID, id):
        id = uuid4().hex[:9]  # Mistral requires nine letters and digits
    used_ids.add(id)
    call.tool_call_id = id
    call.id = id


def _repair_name(call: CallPart) -> None:
    if not re.fullmatch(NAME, call.tool_name):
        _set_metadata(call, "name", well_formed(call.tool_name)[:MAX_QUOTED_CHARS] or "(no name)")
        call.tool_name = valid_call_name(call.tool_name)


def _repair_arguments(call: CallPart) -> None:
    raw = call.tool_args
    value = parse_arguments(raw)
    if value is None:
        _set_metadata(call, "received", well_formed(raw)[:MAX_QUOTED_CHARS])
        call.tool_args = "{}"
    elif is_blank(raw) or value != json.loads(raw):  # not well-formed
        call.tool_args = json.dumps(value, ensure_ascii=False)


def _metadata(part: Message | CallPart) -> dict[str, Any]:
    metadata = (part.provider_metadata or {}).get(METADATA_KEY)
    return metadata if isinstance(metadata, dict) else {}


def _set_metadata(call: CallPart, name: str, value: str) -> None:
    metadata = {**_metadata(call), name: value}
    call.provider_metadata = {**(call.provider_metadata or {}), METADATA_KEY: metadata}


def _name_of(model: ai.Model) -> str:
    return f"{model.provider.name}:{model.id}"
