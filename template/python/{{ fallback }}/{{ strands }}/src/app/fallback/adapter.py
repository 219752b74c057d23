"""Two models as one model of Strands.

Its ModelRouter replaces a model also after a part of the reply, which the caller would see twice.
"""

from collections.abc import AsyncGenerator
from typing import Any

from strands.models import Model

from .second import Second


class FallbackModel(Model):
    """The second model answers a call that the first one fails before its first event."""

    def __init__(self, first: Model, second: Second) -> None:
        self.first, self.second = first, second

    @property
    def config(self) -> Any:
        """The options of the first model, whose name is in spans."""
        return self.first.get_config()

    def update_config(self, **model_config: Any) -> None:
        self.first.update_config(**model_config)

    def get_config(self) -> Any:
        return self.first.get_config()

    def structured_output(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        return self.first.structured_output(*args, **kwargs)

    def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        def ask(model: Any) -> AsyncGenerator[Any, None]:
            events: AsyncGenerator[Any, None] = model.stream(*args, **kwargs)
            return events

        return self.second.stream(ask(self.first), ask)


def with_fallback(first: Model, second: Second) -> Model:
    """Return a model that consists of both."""
    return FallbackModel(first, second)
