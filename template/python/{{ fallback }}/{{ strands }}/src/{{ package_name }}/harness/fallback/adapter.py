"""The fallback model of a Strands turn.

Strands' own ModelRouter can switch models even within a reply, so that the caller would see its
start twice.
"""

from collections.abc import AsyncGenerator
from typing import Any

from strands import Agent
from strands.middleware import InvokeModelStage
from strands.plugins import Plugin

from ..messages import PLACEHOLDER
from .second import FallbackSwitch


class Fallback(Plugin):
    """Falls back to the second model if the first model fails before its first content."""

    name = "fallback"

    def __init__(self, fallback: FallbackSwitch) -> None:
        super().__init__()
        self._fallback = fallback

    def init_agent(self, agent: Agent) -> None:
        agent.add_middleware(InvokeModelStage, self._call_model)

    def _call_model(self, context: Any, run: Any) -> AsyncGenerator[Any, None]:
        def ask(model: Any) -> AsyncGenerator[Any, None]:
            events: AsyncGenerator[Any, None] = run(context.replace(model=model))
            return events

        return self._fallback.stream(ask(context.model), ask, is_content)


def is_content(event: Any) -> bool:
    """Whether an event contains text, reasoning, or a tool call."""
    chunk = event.get("event")
    if chunk is None:
        return False
    if chunk == PLACEHOLDER:
        return True
    start = chunk.get("contentBlockStart", {}).get("start") or {}
    delta = chunk.get("contentBlockDelta", {}).get("delta") or {}
    return "toolUse" in start or any(delta.values())


def prepare(fallback: FallbackSwitch, options: dict[str, Any]) -> None:
    """Wrap the model of a turn, so that the second model answers after a temporary failure."""
    options.setdefault("plugins", []).append(Fallback(fallback))
