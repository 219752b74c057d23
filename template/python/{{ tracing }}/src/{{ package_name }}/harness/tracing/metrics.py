"""Measures turns, and model calls by the OpenTelemetry conventions for generative AI."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry import metrics

from ..contract import Turn

# The boundaries that the conventions recommend, in seconds and in tokens.
SECONDS = [0.01 * 2**power for power in range(14)]
TOKENS = [4**power for power in range(14)]
# The attributes of a model call to copy to its metrics.
ATTRIBUTES = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
)


class Metrics:
    """The metrics of this process, without names of people."""

    def __init__(self) -> None:
        meter = metrics.get_meter("app")
        seconds: dict[str, Any] = {"unit": "s", "explicit_bucket_boundaries_advisory": SECONDS}
        tokens: dict[str, Any] = {"unit": "{token}", "explicit_bucket_boundaries_advisory": TOKENS}
        self._calls = meter.create_histogram("gen_ai.client.operation.duration", **seconds)
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", **tokens)
        self._turns = meter.create_histogram("agent.turn.duration", **seconds)
        self._waits = meter.create_histogram("agent.turn.wait", **seconds)
        self._waiting = WeakKeyDictionary[Turn, float]()  # the start times of waiting turns
        self._open = meter.create_up_down_counter("agent.turns", unit="{turn}")

    def count_call(self, seconds: float, facts: Mapping[str, Any]) -> None:
        """Record a model call with the attributes of its span."""
        attributes = {name: facts[name] for name in ATTRIBUTES if name in facts}
        for kind in ("input", "output"):
            if count := facts.get(f"gen_ai.usage.{kind}_tokens"):
                self._tokens.record(count, {**attributes, "gen_ai.token.type": kind})
        if "error.type" in facts:
            attributes["error.type"] = facts["error.type"]
        self._calls.record(seconds, attributes)

    @contextmanager
    def of_turn(self, turn: Turn) -> Iterator[None]:
        """Count a turn while it waits or runs, and record its duration and outcome."""
        started_at = perf_counter()
        self._waiting[turn] = started_at
        self._open.add(1, {"agent.turn.state": "waiting"})
        try:
            yield
        finally:
            state = "waiting" if turn in self._waiting else "running"
            self._open.add(-1, {"agent.turn.state": state})
            self._turns.record(perf_counter() - started_at, {"turn.outcome": turn.outcome})

    def begin(self, turn: Turn) -> None:
        """Record how long a turn waited for earlier turns of its session."""
        self._waits.record(perf_counter() - self._waiting.pop(turn))
        self._open.add(-1, {"agent.turn.state": "waiting"})
        self._open.add(1, {"agent.turn.state": "running"})
