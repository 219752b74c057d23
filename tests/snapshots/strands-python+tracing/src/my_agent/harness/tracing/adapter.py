"""The spans that Strands makes."""

import json
import os
import re
from collections.abc import Mapping
from typing import Any

SCOPE = "strands.telemetry.tracer"
METER = "strands.telemetry.metrics"
PROVIDER = "aws.bedrock"
# Content in attributes, as in the latest convention; by default Strands uses events.
CONVENTION = "gen_ai_latest_experimental,gen_ai_span_attributes_only"
# The base64 of a file. Strands itself replaces bytes.
FILE = re.compile(r'("bytes": ?")([^"<]+)')


def instrument() -> None:
    """Let the framework make spans."""
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", CONVENTION)


class Names:
    """Masks tool names that the agent does not have, because a model may invent names."""

    def __init__(self) -> None:
        self._tools: set[str] = set()

    def of_span(self, name: str) -> str:
        """Return the name of a span, without an invented tool name."""
        operation, _, tool = name.partition(" ")
        is_unknown = operation == "execute_tool" and tool not in self._tools
        return operation if is_unknown else name

    def in_attributes(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Store an agent's tools; return the attributes with PROVIDER, without invented names."""
        self._tools.update(json.loads(attributes.get("gen_ai.agent.tools", "[]")))
        if "gen_ai.provider.name" in attributes:
            attributes = {**attributes, "gen_ai.provider.name": PROVIDER}
        if attributes.get("gen_ai.tool.name") in {None, *self._tools}:
            return attributes
        return {**attributes, "gen_ai.tool.name": "unknown"}
