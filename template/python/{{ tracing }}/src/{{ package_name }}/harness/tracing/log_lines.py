"""Appends the trace id of a turn to its log lines."""

import logging
from contextvars import ContextVar
from typing import Any

from opentelemetry import trace

_make = logging.getLogRecordFactory()
_of_turn: ContextVar[str] = ContextVar("trace", default="")


def name_traces() -> None:
    """Append the current trace id to each log line."""
    logging.setLogRecordFactory(_record)


def remember_trace() -> None:
    """Keep the trace of the current span for later log lines of its task."""
    _of_turn.set(_trace())


def _trace() -> str:
    current = trace.get_current_span().get_span_context()
    return trace.format_trace_id(current.trace_id) if current.is_valid else _of_turn.get()


def _record(*args: Any, **kwargs: Any) -> logging.LogRecord:
    record = _make(*args, **kwargs)
    if id := _trace():
        record.labels = {"trace": id}
    return record
