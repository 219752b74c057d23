"""In place of the offline model: three texts, whatever it is told, so that others' work is seen."""

from collections.abc import AsyncGenerator
from typing import Any, Literal

import ai
from ai import events

TEXTS = ("I am the offline model", " of the benchmarks,", " and say the same each time.")


class Offline(ai.Provider[None]):
    provider_class_id: Literal["offline"] = "offline"
    name: str = "offline"
    default_base_url: str = ""

    async def stream(self, *_: Any, **__: Any) -> AsyncGenerator[events.Event]:
        yield events.StreamStart()
        yield events.TextStart()
        for text in TEXTS:
            yield events.TextDelta(chunk=text)
        yield events.TextEnd()
        yield events.StreamEnd(finish_reason="stop")


class OfflineModel(ai.Model):
    id: str = "offline"
    provider: ai.Provider[Any] = Offline()
