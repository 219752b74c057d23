"""Asks a model outside a conversation."""

from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from strands.models import Model


@dataclass
class Answer:
    """The answer of a model; 0 tokens means unknown."""

    text: str = ""
    is_whole: bool = False
    input_tokens: int = 0
    output_tokens: int = 0


async def ask(model: Model, instructions: str, text: str, max_chars: int) -> Answer:
    """Return the answer of a model without tools; stop reading above `max_chars` characters."""
    answer = Answer()
    messages: Any = [{"role": "user", "content": [{"text": text}]}]
    events: Any = model.stream(messages, None, instructions)
    async with aclosing(events):
        async for event in events:
            if delta := event.get("contentBlockDelta"):
                answer.text += delta["delta"].get("text", "")
            if stop := event.get("messageStop"):
                answer.is_whole = stop["stopReason"] in {"end_turn", "stop_sequence"}
            if usage := event.get("metadata", {}).get("usage"):
                answer.input_tokens = usage["inputTokens"]
                answer.output_tokens = usage["outputTokens"]
            if len(answer.text) > max_chars:
                break
    return answer
