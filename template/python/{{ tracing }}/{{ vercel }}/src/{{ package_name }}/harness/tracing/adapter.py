"""The spans that the AI SDK makes."""

from collections.abc import Mapping
from typing import Any

from ai import experimental_telemetry

SCOPE = "ai"
METER = ""  # the SDK has no meter


def instrument() -> None:
    """Let the framework make spans."""
    from ai.experimental_telemetry.otel import OtelAdapter

    experimental_telemetry.register(OtelAdapter())


class Names:
    """Masks no tool names: the AI SDK calls only declared tools."""

    def of_span(self, name: str) -> str:
        """Return the name of a span."""
        return name

    def in_attributes(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the attributes."""
        return attributes
