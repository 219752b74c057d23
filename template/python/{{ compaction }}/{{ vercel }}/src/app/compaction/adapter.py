"""Messages of the AI SDK as a summary needs them, and a call of its models."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import ai

from ..contract import ToolCall, ToolResult
from .summary import Answer, Said


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


async def ask(model: ai.Model, instructions: str, text: str, most: int) -> Answer:
    """Return what a model without tools answers; read no more than `most` characters and a few."""
    answer = Answer()
    messages = [ai.system_message(instructions), ai.user_message(text)]
    async with ai.stream(model, messages) as stream:
        async for event in stream:
            if isinstance(event, ai.events.TextDelta):
                answer.text += event.chunk
            if isinstance(event, ai.events.StreamEnd):
                answer.is_whole = event.finish_reason == "stop"
                if usage := event.message.usage:
                    answer.input_tokens = usage.input_tokens
                    answer.output_tokens = usage.output_tokens
            if len(answer.text) > most:
                break
    return answer
