"""Messages of the AI SDK as a summary needs them."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import ai

from ..contract import ToolCall, ToolResult
from .summary import Said


def read(messages: Iterable[Any]) -> Iterator[Said]:
    """Yield what stored messages say."""
    for message in map(ai.messages.Message.model_validate, messages):
        for part in message.parts:
            if isinstance(part, ai.messages.TextPart):
                yield message.role, part.text
            elif isinstance(part, ai.messages.ToolCallPart):
                call = ToolCall(part.tool_call_id, part.tool_name, json.loads(part.tool_args))
                yield message.role, call
            elif isinstance(part, ai.messages.ToolResultPart):
                done = part.result
                text = done if isinstance(done, str) else json.dumps(done, default=str)
                yield message.role, ToolResult(part.tool_call_id, text, part.is_error)


def write(texts: Iterable[tuple[str, str]]) -> list[Any]:
    """Return texts as stored messages."""
    messages = [ai.message(text, role=role) for role, text in texts]
    return [message.model_dump(mode="json", exclude_none=True) for message in messages]
