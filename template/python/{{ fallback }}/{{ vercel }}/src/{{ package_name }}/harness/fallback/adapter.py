"""Combines two AI SDK models."""

from collections.abc import AsyncGenerator
from typing import Any, Literal

import ai
from ai import events
from pydantic import PrivateAttr

from .second import FallbackSwitch


class FallbackProvider(ai.Provider[None]):
    """Falls back to the second model if the first model fails before its first content."""

    provider_class_id: Literal["fallback"] = "fallback"
    name: str = "fallback"
    default_base_url: str = ""
    _first: ai.Model = PrivateAttr()
    _fallback: FallbackSwitch = PrivateAttr()

    def __init__(self, first: ai.Model, fallback: FallbackSwitch) -> None:
        super().__init__(name=first.provider.name)
        self._first = first
        self._fallback = fallback

    def stream(
        self, model: ai.Model, messages: list[ai.messages.Message], **kwargs: Any
    ) -> AsyncGenerator[events.Event]:
        def ask(one: ai.Model) -> AsyncGenerator[events.Event]:
            return one.provider.stream(one, messages, **kwargs)

        return self._fallback.stream(ask(self._first), ask, is_content)


def is_content(event: events.Event) -> bool:
    """Whether an event contains text, reasoning, a tool call, or a file."""
    if isinstance(event, events.TextDelta | events.ReasoningDelta):
        return event.chunk != ""
    starts = events.StreamStart | events.TextStart | events.ReasoningStart
    return not isinstance(event, starts | events.TextEnd)


def with_fallback(first: ai.Model, fallback: FallbackSwitch) -> ai.Model:
    """Return a model that falls back to the second model."""
    return ai.Model(id=first.id, provider=FallbackProvider(first, fallback))


def prepare(fallback: FallbackSwitch, options: dict[str, Any]) -> None:
    """Wrap the model of a turn, so that the second model answers after a temporary failure."""
    options["model"] = with_fallback(options["model"], fallback)
