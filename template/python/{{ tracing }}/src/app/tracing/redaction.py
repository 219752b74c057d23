"""Removes prompts and replies from the spans of the framework."""

import re
from collections.abc import Mapping
from typing import Any

from .adapter import Names

# The attributes of the framework's spans that are kept: none quotes a prompt or reply.
SAFE = re.compile(
    r"(gen_ai\.(operation|provider|agent|request|response|usage)\..*|gen_ai\.tool\.(name|type)"
    r"|gen_ai\.(tool\.call\.id|tool\.status|system|output\.type)|http\..*|error\.type"
    r"|memory\..*\.(count|failure_count|name|names))"
)


def without_content(tracer: Any) -> Any:
    """Keep prompts, replies and the texts of errors out of the spans of a tracer."""
    start_span, names = tracer.start_span, Names()

    def start(name: str, *args: Any, **kwargs: Any) -> Any:
        kwargs["attributes"] = safe(kwargs.get("attributes") or {})
        span = start_span(names.of_span(name), *args, **kwargs)
        set_attributes, set_status = span.set_attributes, span.set_status
        span.set_attributes = lambda attributes: set_attributes(safe(attributes))
        span.set_attribute = lambda key, value: set_attributes(safe({key: value}))
        span.set_status = lambda status, _=None: set_status(getattr(status, "status_code", status))
        span.add_event = span.record_exception = lambda *_, **__: None
        return span

    def safe(attributes: Mapping[str, Any]) -> dict[str, Any]:
        known = names.in_attributes(attributes)
        return {key: value for key, value in known.items() if SAFE.fullmatch(key)}

    tracer.start_span = start
    return tracer
