"""Adapts the framework's spans: names as in the conventions, without prompts and replies."""

import json
import re
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import Any

from opentelemetry.trace import INVALID_SPAN, StatusCode

from .adapter import FILE, Names
from .metrics import Metrics

# The attributes of framework spans to keep: none of them quotes prompts or replies.
SAFE = re.compile(
    r"(gen_ai\.(operation|provider|agent|request|response|usage)\..*|gen_ai\.tool\.(name|type)"
    r"|gen_ai\.(tool\.call\.id|tool\.status|system|output\.type)|http\..*|error\.type"
    r"|memory\..*\.(count|failure_count|name|names))"
)
# The base64 of other files: of a known type, or long.
BASE64 = re.compile(
    r"()((?:iVBORw0KGgo|/9j/|R0lGOD|UklGR|JVBERi0|UEsDB)[A-Za-z0-9+/_-]*=*"
    r"|[A-Za-z0-9+/_-]{1000,}=*)"
)
OPERATION = "gen_ai.operation.name"
MODEL = "gen_ai.request.model"
REASONS = "gen_ai.response.finish_reasons"
OUTPUT = "gen_ai.output.messages"


def adapt(tracer: Any, agent: str, metrics: Metrics, *, with_content: bool) -> None:
    """Make a framework tracer follow the conventions, and measure model calls.

    Unless `with_content`, its spans omit prompts, replies and error messages. They never contain
    the bytes of files.
    """
    start_span = tracer.start_span
    names = Names()

    def start(name: str, *args: Any, **kwargs: Any) -> Any:
        started_at = perf_counter()
        facts = dict[str, Any]()
        read = partial(_read, names, agent, facts, with_content=with_content)
        kwargs["attributes"] = read(kwargs.get("attributes") or {})
        span = start_span(names.of_span(name), *args, **kwargs)
        if span is INVALID_SPAN:  # a disabled provider records nothing
            return span
        set_attributes = span.set_attributes
        set_status = span.set_status
        end = span.end
        add_event = span.add_event
        record_exception = span.record_exception

        def set_safe(attributes: Mapping[str, Any]) -> None:
            set_attributes(read(attributes))
            _rename(span, agent, facts)

        def fail(error: BaseException, *args: Any, **kwargs: Any) -> None:
            set_safe({"error.type": type(error).__name__})
            if with_content:
                record_exception(error, *args, **kwargs)

        def add_safe_event(
            name: str, attributes: Mapping[str, Any] | None = None, *args: Any, **kwargs: Any
        ) -> None:
            if with_content:
                add_event(name, without_files(attributes or {}), *args, **kwargs)

        def finish(*args: Any, **kwargs: Any) -> None:
            if facts.get(OPERATION) == "chat":
                metrics.count_call(perf_counter() - started_at, facts)
            end(*args, **kwargs)

        span.set_attributes = set_safe
        span.record_exception = fail
        span.end = finish
        span.add_event = add_safe_event
        span.set_attribute = lambda key, value: set_safe({key: value})
        if not with_content:
            span.set_status = lambda status, _=None: set_status(_code_of(status))
        _rename(span, agent, facts)
        return span

    if not hasattr(tracer, "is_adapted"):  # a provider may return the same tracer again
        tracer.start_span = start
        tracer.is_adapted = True


def _read(
    names: Names,
    agent: str,
    facts: dict[str, Any],
    attributes: Mapping[str, Any],
    *,
    with_content: bool,
) -> dict[str, Any]:
    """Return the attributes that a span may have, and add them to `facts`."""
    values = dict(names.in_attributes(attributes))
    if with_content:
        values = without_files(values)
    if {**facts, **values}.get(OPERATION) == "invoke_agent":
        values["gen_ai.agent.name"] = agent
    if OUTPUT in values and REASONS not in facts:
        messages = json.loads(values[OUTPUT])
        reasons = [it["finish_reason"] for it in messages if "finish_reason" in it]
        values |= {REASONS: reasons} if reasons else {}
    facts |= values if with_content else {k: v for k, v in values.items() if SAFE.fullmatch(k)}
    return {key: value for key, value in values.items() if key in facts}


def without_files(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes with the sizes of files instead of their base64."""
    return {
        key: BASE64.sub(_size_of, FILE.sub(_size_of, value)) if isinstance(value, str) else value
        for key, value in attributes.items()
    }


def _size_of(found: re.Match[str]) -> str:
    return f"{found[1]}[{len(found[2].rstrip('=')) * 3 // 4} bytes]"


def _rename(span: Any, agent: str, facts: Mapping[str, Any]) -> None:
    """Name a span according to the conventions."""
    target = {"invoke_agent": agent, "chat": facts.get(MODEL)}.get(facts.get(OPERATION, ""))
    if target:
        span.update_name(f"{facts[OPERATION]} {target}")


def _code_of(status: Any) -> StatusCode:
    code: StatusCode = getattr(status, "status_code", status)
    return code
