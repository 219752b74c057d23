"""A model that is down."""

from typing import Any

from app.offline_model import OfflineModel


class DownModel(OfflineModel):
    """Fails before its first event, with each of the errors; then it answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.calls = [*errors], 0

    async def stream(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        async for event in super().stream(*args, **kwargs):
            yield event
