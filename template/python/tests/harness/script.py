"""The steps of a script for a model; `scripted_model.py` has the model that plays them.

An entry of a script is the model's answer to one request: a step, or a list of steps.
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
    """Call a tool. `arguments` may be a string: the text that the model sends as JSON."""

    def __init__(self, name: str, arguments: Mapping[str, Any] | str, id: str = "1") -> None:
        self.name = name
        self.arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
        self.id = id


class Fail:
    """Raise an error, as a model's client does."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class Wait:
    """Send nothing until a test sets the event; `reached` is set when the model waits."""

    def __init__(self, event: asyncio.Event) -> None:
        self.event = event
        self.reached = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the event."""
        self.reached.set()
        await self.event.wait()


class Stop:
    """End the answer for another reason than usual; "cut": the stream breaks off."""

    def __init__(self, reason: Literal["length", "filter", "cut"]) -> None:
        self.reason = reason


Step = Reply | ToolCall | Fail | Wait | Stop
Answer = Step | Sequence[Step]


def steps_of(answer: Answer) -> Sequence[Step]:
    """Return the steps of an answer."""
    return answer if isinstance(answer, Sequence) else [answer]
