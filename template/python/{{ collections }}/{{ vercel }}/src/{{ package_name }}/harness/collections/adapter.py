"""Select the AI SDK messages that a model sees."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Literal

import ai
from pydantic import PrivateAttr


class ShowingProvider(ai.Provider[None]):
    """Passes only the visible messages to the provider of a model."""

    provider_class_id: Literal["showing"] = "showing"
    _model: ai.Model = PrivateAttr()
    _visible: Callable[..., list[Any]] = PrivateAttr()

    async def stream(
        self, model: ai.Model, messages: list[ai.messages.Message], **options: Any
    ) -> AsyncGenerator[ai.events.Event]:
        shown = self._visible(messages, _is_prompt, _without_tools, _size)
        stream = self._model.provider.stream(self._model, shown, **options)
        async with aclosing(stream):
            async for event in stream:
                yield event


def show_only(options: dict[str, Any], visible: Callable[..., list[Any]]) -> None:
    """Show the turn's model only the messages that `visible` returns."""
    model: ai.Model = options["model"]
    wrapped = model.provider
    provider = ShowingProvider(name=wrapped.name, default_base_url=wrapped.default_base_url)
    provider._model = model
    provider._visible = visible
    options["model"] = ai.Model(id=model.id, provider=provider)


def _is_prompt(message: ai.messages.Message) -> bool:
    return message.role == "user"


def _without_tools(message: ai.messages.Message) -> ai.messages.Message:
    texts = [part for part in message.parts if part.kind == "text"]
    return message.model_copy(update={"parts": texts})


def _size(message: ai.messages.Message) -> int:
    return sum(len(part.model_dump_json(exclude_none=True)) for part in message.parts)
