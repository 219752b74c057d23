"""Messages of Strands Agents as a summary needs them, and a call of its models."""

from collections.abc import Iterable, Iterator
from contextlib import aclosing
from typing import Any

from strands.models import Model

from ..turn import tools_of
from .summary import Answer, Said


def read(messages: Iterable[Any]) -> Iterator[Said]:
    """Yield what stored messages say."""
    for message in messages:
        for block in message["content"]:
            if "text" in block:
                yield message["role"], block["text"]
            for chunk in tools_of([block]):
                yield message["role"], chunk


def write(texts: Iterable[tuple[str, str]]) -> list[Any]:
    """Return texts as stored messages."""
    return [{"role": role, "content": [{"text": text}]} for role, text in texts]


async def ask(model: Model, instructions: str, text: str, most: int) -> Answer:
    """Return what a model without tools answers; read no more than `most` characters and a few."""
    answer = Answer()
    messages: Any = write([("user", text)])
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
            if len(answer.text) > most:
                break
    return answer
