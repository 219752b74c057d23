"""A span for each call of the session store and of long-term memory."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from cachetools import LRUCache
from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import Link, SpanContext, SpanKind

from ..capability import Capability, Runtime
from ..contract import Turn
from ..modules import LoadModules
from ..settings import CoreSettings
from .spans import make_span

MAX_TURNS = 1000  # that wait to be recorded
CALLS = {"session_store": ("load", "save", "end"), "memory": ("retrieve", "create_event")}


class TracedCalls(Capability):
    """Decorates the store and the memories of earlier capabilities."""

    def __init__(
        self, settings: CoreSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self._turns = LRUCache[datetime, SpanContext](MAX_TURNS)  # by their start times
        self._memories: list[Any] = [
            it for it in before if getattr(it, "traced_as", None) == "memory"
        ]
        for capability in before:
            decorated: Any = capability
            if name := getattr(capability, "traced_as", None):
                decorated.decorate = partial(Traced, name, self._turns)

    async def open(self, runtime: Runtime) -> None:
        """Measure how many turns wait to be recorded."""
        meter = metrics.get_meter("app")
        meter.create_observable_gauge("agent.memory.waiting", [self._observe], unit="{turn}")

    def _observe(self, _: CallbackOptions) -> Iterator[Observation]:
        for memory in self._memories:
            for name, turns in memory.recorder.waiting.items():
                yield Observation(turns, {"agent.memory.store": name})

    def committed(self, turn: Turn, messages: list[Any]) -> None:
        for memory in self._memories:
            started_at = memory.turns[turn].started_at
            self._turns[started_at] = trace.get_current_span().get_span_context()


class Traced:
    """Forwards all calls, and makes a span for the calls in CALLS."""

    def __init__(self, name: str, turns: Mapping[datetime, SpanContext], target: Any) -> None:
        self._name = name
        self._turns = turns
        self._target = target

    def __getattr__(self, method: str) -> Any:
        call = getattr(self._target, method)
        if method not in CALLS[self._name]:
            return call

        async def run(*args: Any, **kwargs: Any) -> Any:
            # Recording has its own trace, which links to the traces of its turns.
            start_times = [time for event in args for time in getattr(event, "start_times", [])]
            links = [Link(self._turns[time]) for time in start_times if time in self._turns]
            with make_span(f"{self._name}.{method}", SpanKind.CLIENT, links):
                return await call(*args, **kwargs)

        return run
