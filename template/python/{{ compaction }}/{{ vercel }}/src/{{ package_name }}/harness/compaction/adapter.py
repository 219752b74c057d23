"""Converts messages of the AI SDK for summaries."""

from collections.abc import Iterable, Iterator
from typing import Any

import ai

from ..file_parts import files_in
from ..turn import as_tool_call, as_tool_result
from .summary import Utterance


def read(messages: Iterable[Any]) -> Iterator[Utterance]:
    """Yield the texts, names of files, tool calls and tool results of stored messages."""
    for message in map(ai.messages.Message.model_validate, messages):
        for file in files_in(message.parts):
            yield message.role, f"[A file: {file.name or file.media_type}]"
        for part in message.parts:
            if isinstance(part, ai.messages.TextPart):
                yield message.role, part.text
            elif isinstance(part, ai.messages.ToolCallPart):
                yield message.role, as_tool_call(part)
            elif isinstance(part, ai.messages.ToolResultPart):
                yield message.role, as_tool_result(part)


def write(texts: Iterable[tuple[str, str]]) -> list[Any]:
    """Return texts as stored messages."""
    messages = [ai.message(text, role=role) for role, text in texts]
    return [message.model_dump(mode="json", exclude_none=True) for message in messages]
