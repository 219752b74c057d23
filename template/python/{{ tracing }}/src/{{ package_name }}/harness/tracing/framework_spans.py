"""Adapts the spans of the framework: names of the conventions, and no prompts and replies."""

import json
import re
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import Any

from opentelemetry.trace import INVALID_SPAN, StatusCode

from .adapter import Names
from .metrics import Metrics

# The attributes of the framework's spans that are kept: none quotes a prompt or reply.
SAFE = re.compile(
    r"(gen_ai\.(operation|provider|agent|request|response|usage)\..*|gen_ai\.tool\.(name|type)"
    r"|gen_ai\.(tool\.call\.id|tool\.status|system|output\.type)|http\..*|error\.type"
    r"|memory\..*\.(count|failure_count|name|names))"
)
OPERATION = "gen_ai.operation.name"
MODEL = "gen_ai.request.model"
REASONS = "gen_ai.response.finish_reasons"
OUTPUT = "gen_ai.output.messages"


def adapt(tracer: Any, agent: str, metrics: Metrics, *, with_content: bool) -> None:
    """Let a tracer of the framework follow the conventions; measure the calls of the model.

    Unless `with_content`, prompts, replies and the texts of errors are kept out of its spans.
    """
    start_span = tracer.start_span
    names = Names()

    def start(name: str, *args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        facts = dict[str, Any]()
        read = partial(_read, names, agent, facts, with_content=with_content)
        kwargs["attributes"] = read(kwargs.get("attributes") or {})
        span = start_span(names.of_span(name), *args, **kwargs)
        if span is INVALID_SPAN:  # all that is not recorded, by a provider that is disabled
            return span
        set_attributes = span.set_attributes
        set_status = span.set_status
        end = span.end
        record_exception = span.record_exception

        def put(attributes: Mapping[str, Any]) -> None:
            set_attributes(read(attributes))
            _rename(span, agent, facts)

        def fail(error: BaseException, *args: Any, **kwargs: Any) -> None:
            put({"error.type": type(error).__name__})
            if with_content:
                record_exception(error, *args, **kwargs)

        def finish(*args: Any, **kwargs: Any) -> None:
            if facts.get(OPERATION) == "chat":
                metrics.count_call(perf_counter() - began, facts)
            end(*args, **kwargs)

        span.set_attributes = put
        span.record_exception = fail
        span.end = finish
        span.set_attribute = lambda key, value: put({key: value})
        if not with_content:
            span.set_status = lambda status, _=None: set_status(_code_of(status))
            span.add_event = lambda *_, **__: None
        _rename(span, agent, facts)
        return span

    if not hasattr(tracer, "is_adapted"):  # a provider may return the same one again
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
    """Return the attributes that a span may have, and note them in `facts`."""
    known = dict(names.in_attributes(attributes))
    if {**facts, **known}.get(OPERATION) == "invoke_agent":
        known["gen_ai.agent.name"] = agent
    if OUTPUT in known and REASONS not in facts:
        messages = json.loads(known[OUTPUT])
        reasons = [it["finish_reason"] for it in messages if "finish_reason" in it]
        known |= {REASONS: reasons} if reasons else {}
    facts |= known if with_content else {k: v for k, v in known.items() if SAFE.fullmatch(k)}
    return {key: value for key, value in known.items() if key in facts}


def _rename(span: Any, agent: str, facts: Mapping[str, Any]) -> None:
    """Name a span as the conventions do."""
    target = {"invoke_agent": agent, "chat": facts.get(MODEL)}.get(facts.get(OPERATION, ""))
    if target:
        span.update_name(f"{facts[OPERATION]} {target}")


def _code_of(status: Any) -> StatusCode:
    code: StatusCode = getattr(status, "status_code", status)
    return code
