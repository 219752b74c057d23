"""The text and the reasoning in the recorded events of a turn."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

from ..contract import AgentError, Chunk, Reasoning
from .failures import DONE
from .readers import CHUNK_BYTES
from .recording import Recording

EVENT = r"(?:event: (\w+)\n)?data: (.*)\n"  # name and data
WAIT_SECONDS = 60


async def read_chunks(recording: Recording) -> AsyncIterator[Chunk]:
    """Yield the text and the reasoning of a turn while it runs.

    Raises AgentError if the turn fails, or if events are dropped before they are read.
    """
    position = recording.first - 1
    with recording.reading(lambda: position):
        while not recording.is_closed:
            events = recording.read(position, CHUNK_BYTES)
            for event in events:
                if chunk := _parse(recording, event.decode()):
                    yield chunk
            position += len(events)
            if not events and recording.is_ended:
                if recording.lost:
                    _parse(recording, recording.lost.decode())
                return
            if not events:
                await recording.wait(WAIT_SECONDS)


def _parse(recording: Recording, event: str) -> Chunk | None:
    """Return the chunk in an event. Raises the error in an event as AgentError."""
    match = re.match(EVENT, event)
    if match is None or event == DONE:
        return None
    name, text = match.groups()
    data = json.loads(text)
    if recording.format == "chat":
        return _parse_part(data)
    if name == "error":
        raise AgentError("internal_error", data["error"]["message"], data["error"]["type"])
    if name == "reasoning":
        return Reasoning(data)
    return str(data) if name is None else None


def _parse_part(part: dict[str, Any]) -> Chunk | None:
    """Return the chunk in a part of useChat. Raises AgentError."""
    match part["type"]:
        case "text-delta":
            return str(part["delta"])
        case "reasoning-delta":
            return Reasoning(part["delta"])
        case "error":
            type, _, message = part["errorText"].partition(": ")
            raise AgentError("internal_error", message, type)
        case "abort":
            raise AgentError("turn_stopped")
    return None
