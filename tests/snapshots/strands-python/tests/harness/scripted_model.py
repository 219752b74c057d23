"""A scripted model."""

from collections.abc import Sequence
from typing import Any

from script import Answer, Fail, Reply, Stop, ToolCall, Wait, steps_of

from my_agent.harness.echo_model import OfflineModel

STOP_REASONS = {"length": "max_tokens", "filter": "content_filtered", "cut": ""}


class ScriptedModel(OfflineModel):
    """Sends the next answer of the script per request; after the last, replies "ok".

    `requests` has the messages of each request, such as ["user: Hi", "assistant: Hello"].
    """

    def __init__(self, script: Sequence[Answer]) -> None:
        self.script = list(script)
        self.requests: list[list[str]] = []

    async def stream(self, messages: Any, *_: Any, **__: Any) -> Any:
        self.requests.append(lines_of(messages))
        steps = steps_of(self.script.pop(0) if self.script else Reply("ok"))
        # An error in the first step precedes all events.
        if not (steps and isinstance(steps[0], Fail)):
            yield {"messageStart": {"role": "assistant"}}
        stop_reason = "end_turn"
        for step in steps:
            match step:
                case Reply():
                    for text in step.chunks:
                        yield {"contentBlockDelta": {"delta": {"text": text}}}
                        yield {"contentBlockStop": {}}
                case ToolCall():
                    stop_reason = "tool_use"
                    tool = {"name": step.name, "toolUseId": step.id}
                    delta = {"toolUse": {"input": step.arguments}}
                    yield {"contentBlockStart": {"start": {"toolUse": tool}}}
                    yield {"contentBlockDelta": {"delta": delta}}
                    yield {"contentBlockStop": {}}
                case Fail():
                    raise step.error
                case Wait():
                    await step.wait()
                case Stop():
                    stop_reason = STOP_REASONS[step.reason]
        if stop_reason:
            yield {"messageStop": {"stopReason": stop_reason}}


def lines_of(messages: Any) -> list[str]:
    """Return a line for each part of the messages."""
    lines = []
    for message in messages:
        for block in message["content"]:
            if "text" in block:
                lines.append(f"{message['role']}: {block['text']}")
            elif "image" in block:
                lines.append(f"{message['role']}: (image)")
            elif "toolUse" in block:
                lines.append(f"tool call: {block['toolUse']['name']}")
            elif "toolResult" in block:
                lines.append("tool result")
    return lines
