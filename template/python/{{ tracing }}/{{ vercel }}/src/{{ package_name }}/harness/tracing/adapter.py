"""The spans that the AI SDK makes."""

import json
import re
from collections.abc import Mapping
from typing import Any

from ai import experimental_telemetry
from pydantic import BaseModel

SCOPE = "ai"
METER = ""  # the SDK has no meter
RESULT = "gen_ai.tool.call.result"
# The base64 of a file in a prompt or in a tool's result.
FILE = re.compile(
    r'("type": ?"blob", ?"modality": ?"\w*", ?"mime_type": ?"[^"]*", ?"content": ?"'
    r'|"data": ?")([A-Za-z0-9+/_-]+=*)(?=")'
)


def instrument() -> None:
    """Let the framework make spans."""
    from ai.experimental_telemetry.otel import OtelAdapter

    class Adapter(OtelAdapter):
        """Exports a tool's files as base64, which `FILE` finds, and not as a Python literal."""

        def span_attrs(self, span: experimental_telemetry.Span) -> dict[str, Any]:
            attributes: dict[str, Any] = super().span_attrs(span)
            result = getattr(span.data, "result", None)
            if RESULT in attributes and isinstance(result, BaseModel):
                attributes[RESULT] = json.dumps(result.model_dump(mode="json"))
            return attributes

    experimental_telemetry.register(Adapter())


class Names:
    """Masks no tool names: the AI SDK calls only declared tools."""

    def of_span(self, name: str) -> str:
        """Return the name of a span."""
        return name

    def in_attributes(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the attributes."""
        return attributes
