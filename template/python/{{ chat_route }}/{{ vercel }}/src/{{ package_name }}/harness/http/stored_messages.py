"""Reads stored messages of the AI SDK for a page."""

from typing import Any

import ai

from ..contract import File, StoredChunk
from ..file_parts import files_in
from ..turn import as_tool_call, as_tool_result


def read_turns(messages: list[Any]) -> list[tuple[str, list[File], list[StoredChunk]]]:
    """Return the prompt, its files and the chunks of each turn."""
    turns = list[tuple[str, list[File], list[StoredChunk]]]()
    for message in map(ai.messages.Message.model_validate, messages):
        if message.role == "user":
            turns.append((message.text, files_in(message.parts), []))
        elif turns:
            for part in message.parts:
                turns[-1][2].extend(_chunks(part))
    return turns


def _chunks(part: ai.messages.Part) -> list[StoredChunk]:
    if isinstance(part, ai.messages.TextPart):
        return [part.text]
    if isinstance(part, ai.messages.ToolCallPart):
        return [as_tool_call(part)]
    if isinstance(part, ai.messages.ToolResultPart):
        return [as_tool_result(part)]
    return []
