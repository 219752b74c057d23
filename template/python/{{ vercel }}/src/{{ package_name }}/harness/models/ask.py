"""Asks a model outside a conversation."""

from dataclasses import dataclass

import ai


@dataclass
class Answer:
    """The answer of a model; 0 tokens means unknown."""

    text: str = ""
    is_whole: bool = False
    input_tokens: int = 0
    output_tokens: int = 0


async def ask(model: ai.Model, instructions: str, text: str, max_chars: int) -> Answer:
    """Return the answer of a model without tools; stop reading above `max_chars` characters."""
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
            if len(answer.text) > max_chars:
                break
    return answer
