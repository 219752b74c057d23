"""A Strands model that counts its requests."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from copy import copy
from functools import partial
from typing import Any

from strands.models import Model

from ..sessions.sessions import chars_of
from .metering import Meter


def metered(model: Model, meter: Meter) -> Model:
    """Return a copy of a model that counts its requests.

    The copy has the model's class: a session assigns reasoning to a model by class and id.
    """
    counting = copy(model)
    vars(counting)["stream"] = partial(_stream, model, meter)
    return counting


async def _stream(
    model: Model,
    meter: Meter,
    messages: Any,
    tool_specs: Any = None,
    system_prompt: Any = None,
    **options: Any,
) -> AsyncGenerator[Any]:
    async with meter.request(chars_of([messages, tool_specs, system_prompt])) as request:
        events: Any = model.stream(messages, tool_specs, system_prompt, **options)
        async with aclosing(events):
            async for event in events:
                request.chars += chars_of(event)
                if usage := event.get("metadata", {}).get("usage"):
                    request.usage = _tokens_of(usage)
                yield event


def _tokens_of(usage: dict[str, int]) -> int:
    cached = usage.get("cacheReadInputTokens", 0) + usage.get("cacheWriteInputTokens", 0)
    return usage["inputTokens"] + cached + usage["outputTokens"]
