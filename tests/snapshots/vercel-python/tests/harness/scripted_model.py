"""A scripted model."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal

import ai
from ai import events
from script import Answer, Fail, Reply, Stop, ToolCall, Wait, steps_of

from my_agent.harness.echo_model import Offline, OfflineModel

STOP_REASONS = {"length": "length", "filter": "content_filter", "cut": ""}


class ScriptedProvider(Offline):
    """The provider of a ScriptedModel."""

    provider_class_id: Literal["scripted"] = "scripted"  # type: ignore[assignment]

    async def stream(self, model: Any, messages: Any, **_: Any) -> AsyncGenerator[events.Event]:
        model.requests.append(lines_of(messages))
        steps = steps_of(model.script.pop(0) if model.script else Reply("ok"))
        # An error in the first step precedes all events.
        if not (steps and isinstance(steps[0], Fail)):
            yield events.StreamStart()
        finish_reason = "stop"
        for step in steps:
            match step:
                case Reply():
                    for text in step.chunks:
                        yield events.TextStart()
                        yield events.TextDelta(chunk=text)
                        yield events.TextEnd()
                case ToolCall():
                    finish_reason = "tool_call"
                    yield events.ToolStart(tool_call_id=step.id, tool_name=step.name)
                    yield events.ToolDelta(tool_call_id=step.id, chunk=step.arguments)
                    yield events.ToolEnd(
                        tool_call_id=step.id, tool_call=ai.messages.DUMMY_TOOL_CALL
                    )
                case Fail():
                    raise step.error
                case Wait():
                    await step.wait()
                case Stop():
                    finish_reason = STOP_REASONS[step.reason]
        if finish_reason:
            yield events.StreamEnd(finish_reason=finish_reason)


class ScriptedModel(OfflineModel):
    """Sends the next answer of the script per request; after the last, replies "ok".

    `requests` has the messages of each request, such as ["user: Hi", "assistant: Hello"].
    """

    script: Any = None
    requests: Any = None

    def __init__(self, script: Sequence[Answer]) -> None:
        super().__init__(provider=ScriptedProvider())
        self.script = list(script)
        self.requests = []


def lines_of(messages: Any) -> list[str]:
    """Return a line for each part of the messages, without the system prompt."""
    lines = []
    for message in messages[1:]:
        for part in message.parts:
            if part.kind == "text":
                lines.append(f"{message.role}: {part.text}")
            elif part.kind == "file":
                lines.append(f"{message.role}: (image)")
            elif part.kind == "tool_call":
                lines.append(f"tool call: {part.tool_name}")
            elif part.kind == "tool_result":
                lines.append("tool result")
    return lines
