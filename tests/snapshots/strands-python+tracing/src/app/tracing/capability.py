"""Traces as a capability: where spans go, and the span of each turn."""

import asyncio
import hashlib
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from opentelemetry import context, propagate, trace
from opentelemetry.trace import SpanKind
from starlette.types import ASGIApp, Receive, Scope, Send

from ..capability import Capability
from ..contract import Turn
from ..settings import without_password
from .adapter import SCOPE, instrument
from .spans import make_span, without_content

log = logging.getLogger(__name__)
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Tracing(Capability):
    """Exports spans to OTEL_EXPORTER_OTLP_ENDPOINT, if it is set.

    An existing provider, as under `opentelemetry-instrument`, is used unchanged.
    """

    async def open(self) -> None:
        """Let the framework make spans."""
        if not _has_provider():
            if not _endpoint():
                return
            _export(self.settings.project_name)
        provider: Any = trace.get_tracer_provider()
        switch = os.environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "")
        if switch.lower() not in {"true", "1", "span_only", "span_and_event"}:
            get_tracer = provider.get_tracer

            def get(name: str, *args: Any, **kwargs: Any) -> Any:
                tracer = get_tracer(name, *args, **kwargs)
                return without_content(tracer) if name == SCOPE else tracer

            provider.get_tracer = get
        instrument()

    def describe(self, address: str) -> list[str]:
        return [_describe_endpoint()] if _endpoint() else []

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Continue the traces of callers, as their header `traceparent` says."""

        async def traced(scope: Scope, receive: Receive, send: Send) -> None:
            headers = {name.decode(): text.decode("latin-1") for name, text in scope["headers"]}
            token = context.attach(propagate.extract(headers))
            try:
                await app(scope, receive, send)
            finally:
                context.detach(token)

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            # An instrumentation has continued it already.
            is_traced = trace.get_current_span().get_span_context().is_valid
            is_request = scope["type"] == "http" and not is_traced
            await (traced if is_request else app)(scope, receive, send)

        return respond

    @asynccontextmanager
    async def around(self, turn: Turn) -> AsyncIterator[None]:
        """Make the span of a turn; what the turn calls is below it."""
        is_below = trace.get_current_span().is_recording()
        with make_span("turn", SpanKind.INTERNAL if is_below else SpanKind.SERVER) as span:
            try:
                yield
            except BaseException as error:
                turn.fail(error)
                raise
            finally:
                span.set_attribute("session.id", turn.session_id)
                span.set_attribute("gen_ai.conversation.id", turn.session_id)
                if turn.actor and span.is_recording():
                    digest = hashlib.sha256(turn.actor.encode()).hexdigest()
                    span.set_attribute("enduser.pseudo.id", digest)
                span.set_attribute("turn.number", turn.number)
                span.set_attribute("turn.outcome", turn.outcome)

    async def close(self) -> None:
        """Send the remaining spans, within a second."""
        flush = getattr(trace.get_tracer_provider(), "force_flush", None)
        if flush:
            await asyncio.wait({asyncio.create_task(asyncio.to_thread(flush, 1000))}, timeout=1)


def _endpoint() -> str:
    return next(filter(None, map(os.environ.get, ENDPOINTS)), "")


def _describe_endpoint() -> str:
    return f"Traces: contacts {without_password(_endpoint())}"


def _has_provider() -> bool:
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _export(service: str) -> None:
    """Set a provider that exports spans; warn once while they cannot be sent."""
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
                log.warning("%s is not accepting spans; turns continue", _describe_endpoint())
            self.is_failing = is_failing
            return result

    named = Resource({"service.name": service})
    resource = named.merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Exporter()))
    trace.set_tracer_provider(provider)
