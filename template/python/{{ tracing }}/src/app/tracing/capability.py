"""Traces as a capability: where spans go, and the span of each turn."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from uuid import uuid4

from opentelemetry import context, propagate, trace
from starlette.types import ASGIApp, Receive, Scope, Send

from ..capability import Capability
from ..contract import Turn
from ..settings import without_password
from .adapter import SCOPE, instrument
from .log_lines import name_traces, remember_trace
from .redaction import without_content
from .spans import turn_span

log = logging.getLogger(__name__)
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Tracing(Capability):
    """Exports spans to OTEL_EXPORTER_OTLP_ENDPOINT, if it is set.

    An existing provider, as under `opentelemetry-instrument`, is kept; only prompts and replies are
    removed from the spans of the framework.
    """

    async def open(self) -> None:
        """Set up the export, and let the framework make spans without prompts and replies."""
        if not _has_provider():
            if not _endpoint():
                return
            _export(self.settings.project_name)
        name_traces()
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
        return [f"Traces: contacts {without_password(_endpoint())}"] if _endpoint() else []

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
            # If there is a span, an instrumentation has continued the trace already.
            is_traced = trace.get_current_span().get_span_context().is_valid
            is_request = scope["type"] == "http" and not is_traced
            await (traced if is_request else app)(scope, receive, send)

        return respond

    @asynccontextmanager
    async def around(self, turn: Turn) -> AsyncIterator[None]:
        with turn_span(turn):
            remember_trace()
            yield

    async def close(self) -> None:
        """Send the remaining spans, within a second."""
        flush = getattr(trace.get_tracer_provider(), "force_flush", None)
        if flush:
            await asyncio.wait({asyncio.create_task(asyncio.to_thread(flush, 1000))}, timeout=1)


def _endpoint() -> str:
    return next(filter(None, map(os.environ.get, ENDPOINTS)), "")


def _has_provider() -> bool:
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _export(service: str) -> None:
    """Set a provider that exports spans; warn each time that sending begins to fail."""
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
                where = without_password(_endpoint())
                log.warning("Traces: %s is not accepting spans; turns continue", where)
            self.is_failing = is_failing
            return result

    usual = Resource.create().attributes  # with the name and version of the SDK
    sdk = {name: value for name, value in usual.items() if name.startswith("telemetry.")}
    own = {"service.name": service, "service.instance.id": str(uuid4())}
    with suppress(PackageNotFoundError):
        own["service.version"] = version(service)
    named = Resource({**sdk, **own})
    resource = named.merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Exporter()))
    trace.set_tracer_provider(provider)
