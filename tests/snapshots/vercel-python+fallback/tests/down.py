"""A model that is down."""

from collections.abc import AsyncGenerator
from typing import Any, Literal

from ai import events

from app.offline_model import Offline, OfflineModel


class Down(Offline):
    provider_class_id: Literal["down"] = "down"  # type: ignore[assignment]

    async def stream(self, model: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[events.Event]:
        model.calls += 1
        if model.errors:
            raise model.errors.pop(0)
        async for event in super().stream(model, *args, **kwargs):
            yield event


class DownModel(OfflineModel):
    """Fails before its first event, with each of the errors; then it answers."""

    errors: Any = None
    calls: int = 0

    def __init__(self, *errors: Exception) -> None:
        super().__init__(provider=Down())
        self.errors = [*errors]
