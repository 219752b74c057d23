"""The steps of a script for the model in `scripted_model.py`.

An entry of a script is the model's answer to a request: a step or a list of steps.
For example, this model fails in the middle of its second answer:

    ScriptedModel([Reply("Hello"), [Reply("Well, "), Fail(ValueError("secret"))]])
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal


class Reply:
    """Send text, in one or more chunks."""

    def __init__(self, *chunks: str) -> None:
        self.chunks = chunks


class ToolCall:
    """Call a tool. A string as `arguments` is sent unchanged."""

    def __init__(self, name: str, arguments: Mapping[str, Any] | str, id: str = "1") -> None:
        self.name = name
        self.arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
        self.id = id


class Fail:
    """Raise an error, like a model's client."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class Wait:
    """Wait until a test sets the event; `reached` is set when the model waits."""

    def __init__(self, event: asyncio.Event) -> None:
        self.event = event
        self.reached = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the event."""
        self.reached.set()
        await self.event.wait()


class Stop:
    """End the answer for an unusual reason; "cut" ends the stream without a reason."""

    def __init__(self, reason: Literal["length", "filter", "cut"]) -> None:
        self.reason = reason


Step = Reply | ToolCall | Fail | Wait | Stop
Answer = Step | Sequence[Step]


def steps_of(answer: Answer) -> Sequence[Step]:
    """Return the steps of an answer."""
    return answer if isinstance(answer, Sequence) else [answer]
