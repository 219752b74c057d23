"""A span for each call of the session store and of long-term memory."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from opentelemetry.trace import SpanKind

from ..capability import Capability
from ..settings import CoreSettings
from .spans import make_span

CALLS = {"session_store": ("load", "save", "end"), "memory": ("retrieve", "create_event")}


class TracedCalls(Capability):
    """Decorates the store and the memories of earlier capabilities."""

    def __init__(self, settings: CoreSettings, before: Sequence[Capability]) -> None:
        super().__init__(settings, before)
        for capability in before:
            decorated: Any = capability
            if name := getattr(capability, "traced_as", None):
                decorated.decorate = partial(Traced, name)


class Traced:
    """Forwards all calls, and makes a span of those in CALLS."""

    def __init__(self, name: str, target: Any) -> None:
        self._name, self._target = name, target

    def __getattr__(self, method: str) -> Any:
        call = getattr(self._target, method)
        if method not in CALLS[self._name]:
            return call

        async def run(*args: Any, **kwargs: Any) -> Any:
            with make_span(f"{self._name}.{method}", SpanKind.CLIENT):
                return await call(*args, **kwargs)

        return run
