"""Keeps extra fields of Chat Completions servers and sends them back with the tool calls.

DeepSeek and Kimi send `reasoning_content`, OpenRouter `reasoning` and `reasoning_details`, and
Gemini signs a call in `extra_content`. The AI SDK drops the names or the values.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from itertools import chain
from typing import Any

import ai

from .chat_stream import visible_reasoning

METADATA_KEY = "chat"  # in `provider_metadata`
START_MARK = " "  # signals the start of reasoning
FIELDS = ("reasoning", "reasoning_content", "reasoning_details", "extra_content")


class Extras:
    """The extra fields of an answer."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Any]] = {}  # of the message, by the name of the field
        self.of_calls: dict[str, Any] = {}  # by id

    async def extract_from(self, chunks: AsyncIterator[Any]) -> AsyncGenerator[Any]:
        """Yield the chunks with only the text of reasoning, and with calls without arguments.

        The base class drops calls without arguments, so their arguments become a blank.
        """
        ids = dict[int, str]()
        empty = dict[int, Any]()
        filled = set[int]()
        has_begun = False
        async for chunk in chunks:
            for choice in chunk.choices[:1]:
                text = visible_reasoning(choice.delta.model_extra or {})
                self._take(choice.delta)
                if self._parts and not has_begun:
                    has_begun = True
                    text = text or START_MARK
                if text:
                    choice.delta.model_extra["reasoning_content"] = text
                for call in choice.delta.tool_calls or []:
                    id = ids.setdefault(call.index, call.id)
                    if extra := (call.model_extra or {}).get("extra_content"):
                        self.of_calls[id] = extra
                    if call.function and call.function.arguments:
                        filled.add(call.index)
                    elif call.function:
                        empty.setdefault(call.index, call)
                if choice.finish_reason:
                    late = [call for index, call in empty.items() if index not in filled]
                    for call in late:
                        call.function.arguments = " "
                    choice.delta.tool_calls = [*(choice.delta.tool_calls or []), *late]
            yield chunk

    def _take(self, delta: Any) -> None:
        fields = delta.model_extra or {}
        for name in FIELDS:
            value = fields.pop(name, None)
            parts = self._parts.get(name)
            if not value:
                continue
            if parts and isinstance(value, str | list) and type(value) is type(parts[0]):
                parts.append(value)
            else:
                self._parts[name] = [value]

    def _of_message(self) -> dict[str, Any]:
        return {name: _joined(parts) for name, parts in self._parts.items()}

    def attach_to(self, event: ai.events.Event) -> ai.events.Event:
        """Return the event with the fields as metadata of the message or call."""
        fields: Any = None
        if isinstance(event, ai.events.StreamEnd):
            fields = self._of_message()
        elif isinstance(event, ai.events.ToolEnd):
            fields = self.of_calls.get(event.tool_call_id)
        if not fields:
            return event
        metadata = {**(event.provider_metadata or {}), METADATA_KEY: fields}
        return event.model_copy(update={"provider_metadata": metadata})


def _joined(parts: list[Any]) -> Any:
    """Join the parts of a text or a list; return the first part of other values."""
    if isinstance(parts[0], str):
        return "".join(parts)
    return [*chain.from_iterable(parts)] if isinstance(parts[0], list) else parts[0]


def restore_extras(
    messages: Sequence[ai.messages.Message], request: Sequence[dict[str, Any]]
) -> None:
    """Add the extra fields of earlier calls to the messages of a request."""
    of_message = dict[str, Any]()
    of_calls = dict[str, Any]()
    for message in messages:
        for call in message.tool_calls:
            of_message[call.tool_call_id] = (message.provider_metadata or {}).get(METADATA_KEY, {})
            of_calls[call.tool_call_id] = (call.provider_metadata or {}).get(METADATA_KEY)
    for entry in request:
        if entry["role"] != "assistant":
            continue
        entry.pop("reasoning", None)  # the field of another vendor
        for call in entry.get("tool_calls", []):
            entry.update(of_message.get(call["id"], {}))
            if extra := of_calls.get(call["id"]):
                call["extra_content"] = extra


def images_after_results(request: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Move images of tool results into user messages.

    Tool messages may contain only text.
    """
    messages = list[dict[str, Any]]()
    images = list[dict[str, Any]]()
    for entry in request:
        if images and entry["role"] != "tool":
            messages.append({"role": "user", "content": images})
            images = []
        if entry["role"] == "tool" and isinstance(entry["content"], list):
            texts = [part["text"] for part in entry["content"] if part["type"] == "text"]
            shown = [part for part in entry["content"] if part["type"] != "text"]
            images = [*images, *shown]
            entry["content"] = "\n".join([*texts, *("[image]" for _ in shown)])
        messages.append(entry)
    if images:
        messages.append({"role": "user", "content": images})
    return messages
