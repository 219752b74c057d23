"""An AI SDK model that counts its requests."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal

import ai
from pydantic import PrivateAttr

from ..sessions.sessions import chars_of
from .metering import Meter


class MeteredProvider(ai.Provider[None]):
    """The provider of a model that counts its requests."""

    provider_class_id: Literal["metered"] = "metered"
    _model: ai.Model = PrivateAttr()
    _meter: Meter = PrivateAttr()

    async def stream(
        self, model: ai.Model, messages: list[ai.messages.Message], **options: Any
    ) -> AsyncGenerator[ai.events.Event]:
        specs = [tool.spec for tool in options.get("tools") or [] if tool.spec]
        sent = [part.model_dump() for part in [*messages, *specs]]
        async with self._meter.request(chars_of(sent)) as request:
            stream = self._model.provider.stream(self._model, messages, **options)
            async with aclosing(stream):
                async for event in stream:
                    request.chars += len(getattr(event, "chunk", ""))
                    if isinstance(event, ai.events.StreamEnd) and event.usage:
                        request.usage = event.usage.input_tokens + event.usage.output_tokens
                    yield event


def metered(model: ai.Model, meter: Meter) -> ai.Model:
    """Wrap a model so that its requests count toward the limits."""
    inner = model.provider
    provider = MeteredProvider(name=inner.name, default_base_url=inner.default_base_url)
    provider._model = model
    provider._meter = meter
    return ai.Model(id=model.id, provider=provider)
