"""Traces by OpenTelemetry: a span for each turn; below it model calls, tools, store and memory."""

import asyncio
import hashlib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import context, propagate, trace
from opentelemetry.trace import SpanKind, StatusCode
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from .contract import TurnReport, TurnRequest
from .settings import without_password

log = logging.getLogger(__name__)
tracer = trace.get_tracer("app")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
# What a span of the framework may have without the switch: nothing that quotes what was said.
SAFE = re.compile(
    r"(gen_ai\.(operation|provider|agent|request|response|usage)\..*|gen_ai\.tool\.(name|type)"
    r"|gen_ai\.(tool\.call\.id|tool\.status|system|output\.type)|http\..*|error\.type"
    r"|memory\..*\.(count|failure_count|name|names))"
)
SCOPE = "ai"


def open_tracing() -> None:
    """Export spans to OTEL_EXPORTER_OTLP_ENDPOINT, if it is set, and let the framework make them.

    A provider that is there already, as under `opentelemetry-instrument`, is used as it is.
    """
    if not _is_on():
        if not _endpoint():
            return
        _export()
    provider: Any = trace.get_tracer_provider()
    switch = os.environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "")
    if switch.lower() not in {"true", "1", "span_only", "span_and_event"}:
        get_tracer = provider.get_tracer
        provider.get_tracer = lambda name, *args, **kwargs: (
            _without_content if name == SCOPE else _as_it_is
        )(get_tracer(name, *args, **kwargs))
    from ai import experimental_telemetry
    from ai.experimental_telemetry.otel import OtelAdapter

    experimental_telemetry.register(OtelAdapter())


def describe_tracing() -> list[str]:
    """Return what spans are sent to, without passwords; nothing when they are not exported."""
    return [f"Traces: contacts {without_password(_endpoint())}"] if _endpoint() else []


def _endpoint() -> str:
    return next(filter(None, map(os.environ.get, ENDPOINTS)), "")


def _is_on() -> bool:
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _export() -> None:
    """Set a provider that exports spans; one warning says that they cannot be sent."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

    class Exporter(OTLPSpanExporter):
        is_failing = False

        def export(self, *args: Any, **kwargs: Any) -> SpanExportResult:
            result = super().export(*args, **kwargs)
            is_failing = result is not SpanExportResult.SUCCESS
            if is_failing and not self.is_failing:
                log.warning("%s, which takes no spans; turns continue", describe_tracing()[0])
            self.is_failing = is_failing
            return result

    named = Resource({"service.name": "my-agent"})
    resource = named.merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Exporter()))
    trace.set_tracer_provider(provider)


async def close_tracing() -> None:
    """Send what is left, within a second."""
    flush = getattr(trace.get_tracer_provider(), "force_flush", None)
    if flush:
        await asyncio.wait({asyncio.create_task(asyncio.to_thread(flush, 1000))}, timeout=1)


def with_caller(app: Starlette) -> Starlette:
    """Let an app continue the traces of its callers, as their header `traceparent` says."""
    if _is_on():
        app.add_middleware(_Caller)
    return app


class _Caller:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode(): text.decode("latin-1") for name, text in scope.get("headers", [])}
        is_traced = trace.get_current_span().get_span_context().is_valid  # by an instrumentation
        token = context.attach(context.get_current() if is_traced else propagate.extract(headers))
        try:
            await self.app(scope, receive, send)
        finally:
            context.detach(token)


@contextmanager
def turn_span(request: TurnRequest, report: TurnReport) -> Iterator[None]:
    """Make the span of a turn; what the turn calls is below it."""
    is_below = trace.get_current_span().is_recording()
    kind = SpanKind.INTERNAL if is_below else SpanKind.SERVER
    with _span("turn", kind) as span:
        try:
            yield
        except BaseException as error:
            report.fail(error)
            raise
        finally:
            span.set_attribute("session.id", request.session_id)
            span.set_attribute("gen_ai.conversation.id", request.session_id)
            if request.actor and span.is_recording():
                digest = hashlib.sha256(request.actor.encode()).hexdigest()
                span.set_attribute("enduser.pseudo.id", digest)
            span.set_attribute("turn.number", report.turn)
            span.set_attribute("turn.outcome", report.outcome)


@contextmanager
def _span(name: str, kind: SpanKind) -> Iterator[trace.Span]:
    with tracer.start_as_current_span(
        name, kind=kind, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:
            span.set_attribute("error.type", getattr(error, "type", type(error).__name__))
            span.set_status(StatusCode.ERROR)
            raise


def _as_it_is(tracer: Any) -> Any:
    return tracer


def _without_content(tracer: Any) -> Any:
    """Keep prompts, replies and the texts of errors out of the spans of a tracer."""
    start_span = tracer.start_span

    def start(name: str, *args: Any, **kwargs: Any) -> Any:
        kwargs["attributes"] = safe(kwargs.get("attributes") or {})
        span = start_span(name, *args, **kwargs)
        set_attributes, set_status = span.set_attributes, span.set_status
        span.set_attributes = lambda attributes: set_attributes(safe(attributes))
        span.set_attribute = lambda key, value: set_attributes(safe({key: value}))
        span.set_status = lambda status, _=None: set_status(getattr(status, "status_code", status))
        span.add_event = span.record_exception = lambda *_, **__: None
        return span

    def safe(attributes: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in attributes.items() if SAFE.fullmatch(key)}

    tracer.start_span = start
    return tracer
