"""Makes a span for each turn, and for its calls."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import Link, SpanKind, StatusCode

from ..contract import Turn


@contextmanager
def make_span(name: str, kind: SpanKind, links: Sequence[Link] = ()) -> Iterator[trace.Span]:
    """Make a span, and record the type of an error without its message."""
    with trace.get_tracer("app").start_as_current_span(
        name, kind=kind, links=links, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:
            span.set_attribute("error.type", getattr(error, "type", type(error).__name__))
            span.set_status(StatusCode.ERROR)
            raise


@contextmanager
def turn_span(turn: Turn) -> Iterator[None]:
    """Make the span of a turn, of kind SERVER, or of kind INTERNAL inside another span."""
    has_parent = trace.get_current_span().is_recording()
    with make_span("turn", SpanKind.INTERNAL if has_parent else SpanKind.SERVER) as span:
        try:
            yield
        finally:
            span.set_attribute("session.id", turn.session_id)
            span.set_attribute("gen_ai.conversation.id", turn.session_id)
            if turn.actor and span.is_recording():
                digest = hashlib.sha256(turn.actor.encode()).hexdigest()
                span.set_attribute("enduser.pseudo.id", digest)
            if turn.number:  # unknown until the session is read
                span.set_attribute("turn.number", turn.number)
            if turn.model:
                span.set_attribute("gen_ai.response.model", turn.model)
            span.set_attribute("turn.outcome", turn.outcome)
            span.set_attribute("turn.tokens_cached", turn.usage.cached_tokens)
