"""Measures model calls, as the conventions of OpenTelemetry for generative AI say, and turns."""

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
# The attributes of a model call that its metrics have.
KEPT = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
)


class Metrics:
    """The metrics of this process. They name nobody."""

    def __init__(self) -> None:
        meter = metrics.get_meter("app")
        seconds: dict[str, Any] = {"unit": "s", "explicit_bucket_boundaries_advisory": SECONDS}
        tokens: dict[str, Any] = {"unit": "{token}", "explicit_bucket_boundaries_advisory": TOKENS}
        self._calls = meter.create_histogram("gen_ai.client.operation.duration", **seconds)
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", **tokens)
        self._turns = meter.create_histogram("agent.turn.duration", **seconds)
        self._waits = meter.create_histogram("agent.turn.wait", **seconds)
        self._since = WeakKeyDictionary[Turn, float]()  # the turns that wait
        self._open = meter.create_up_down_counter("agent.turns", unit="{turn}")

    def count_call(self, seconds: float, facts: Mapping[str, Any]) -> None:
        """Count a call of the model, by the attributes of its span."""
        attributes = {name: facts[name] for name in KEPT if name in facts}
        for kind in ("input", "output"):
            if count := facts.get(f"gen_ai.usage.{kind}_tokens"):
                self._tokens.record(count, {**attributes, "gen_ai.token.type": kind})
        if "error.type" in facts:
            attributes["error.type"] = facts["error.type"]
        self._calls.record(seconds, attributes)

    @contextmanager
    def of_turn(self, turn: Turn) -> Iterator[None]:
        """Count a turn: while it waits or runs, and with its outcome when it ends."""
        began = perf_counter()
        self._since[turn] = began
        self._open.add(1, {"agent.turn.state": "waiting"})
        try:
            yield
        finally:
            state = "waiting" if turn in self._since else "running"
            self._open.add(-1, {"agent.turn.state": state})
            self._turns.record(perf_counter() - began, {"turn.outcome": turn.outcome})

    def begin(self, turn: Turn) -> None:
        """Count how long a turn waited for the turns of its session before it."""
        self._waits.record(perf_counter() - self._since.pop(turn))
        self._open.add(-1, {"agent.turn.state": "waiting"})
        self._open.add(1, {"agent.turn.state": "running"})
