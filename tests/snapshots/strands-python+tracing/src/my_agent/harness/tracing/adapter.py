"""The spans that Strands makes."""

import json
import os
from collections.abc import Mapping
from typing import Any

SCOPE = "strands.telemetry.tracer"
METER = "strands.telemetry.metrics"
PROVIDER = "aws.bedrock"
# Content in attributes, as in the latest convention; by default Strands uses events.
CONVENTION = "gen_ai_latest_experimental,gen_ai_span_attributes_only"


def instrument() -> None:
    """Let the framework make spans."""
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", CONVENTION)


class Names:
    """The names of tools that spans may have: the model can invent others."""

    def __init__(self) -> None:
        self._tools: set[str] = set()

    def of_span(self, name: str) -> str:
        """Return the name of a span, without an invented tool."""
        operation, _, tool = name.partition(" ")
        is_unknown = operation == "execute_tool" and tool not in self._tools
        return operation if is_unknown else name

    def in_attributes(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Note the tools of an agent; return the attributes with PROVIDER, and no invented name."""
        self._tools.update(json.loads(attributes.get("gen_ai.agent.tools", "[]")))
        if "gen_ai.provider.name" in attributes:
            attributes = {**attributes, "gen_ai.provider.name": PROVIDER}
        if attributes.get("gen_ai.tool.name") in {None, *self._tools}:
            return attributes
        return {**attributes, "gen_ai.tool.name": "unknown"}
