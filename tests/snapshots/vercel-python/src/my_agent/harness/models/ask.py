"""A question to a model, outside of a conversation."""

from dataclasses import dataclass

import ai


@dataclass
class Answer:
    """What a model wrote, and whether it was finished; 0 tokens are unknown."""

    text: str = ""
    is_whole: bool = False
    input_tokens: int = 0
    output_tokens: int = 0


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
