"""Traces and metrics as a capability: where they go, and the span of each turn."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from threading import Thread
from typing import Any

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.metrics import NoOpMeter
from starlette.types import ASGIApp, Receive, Scope, Send

from ..capability import Capability, Runtime
from ..contract import Turn
from ..modules import LoadModules
from ..settings import CoreSettings, without_password
from .adapter import METER, SCOPE, instrument
from .export import endpoint_of, export
from .framework_spans import adapt
from .log_lines import name_traces, remember_trace
from .metrics import Metrics
from .spans import turn_span

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
SIGNALS = ("Traces", "Metrics")


class Tracing(Capability):
    """Exports spans and metrics to OTEL_EXPORTER_OTLP_ENDPOINT, if it is set.

    Keeps existing providers, such as those of `opentelemetry-instrument`. Then framework spans only
    get the names of the conventions, and lose prompts and replies.
    """

    def __init__(
        self, settings: CoreSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self.metrics = Metrics()

    @property
    def closes_last(self) -> bool:
        """Close last, to send the spans of other capabilities."""
        return True

    async def open(self, runtime: Runtime) -> None:
        """Set up the export, and let the framework make spans without prompts and replies."""
        if not _has_provider():
            if not any(endpoint_of(signal.upper()) for signal in SIGNALS):
                return
            export(self.settings.project_name)
        name_traces()
        switch = os.environ.get(CAPTURE, "").lower()
        has_content = switch in {"true", "1", "span_only", "span_and_event"}
        spans: Any = trace.get_tracer_provider()
        meters: Any = metrics.get_meter_provider()
        get_tracer = spans.get_tracer
        get_meter = meters.get_meter

        def tracer_of(name: str, *args: Any, **kwargs: Any) -> Any:
            tracer = get_tracer(name, *args, **kwargs)
            if name == SCOPE:
                adapt(tracer, self.settings.project_name, self.metrics, with_content=has_content)
            return tracer

        def meter_of(name: str, *args: Any, **kwargs: Any) -> Any:
            # The framework's own metrics contain tool names that a model may invent.
            return NoOpMeter(name) if name == METER else get_meter(name, *args, **kwargs)

        spans.get_tracer = tracer_of
        meters.get_meter = meter_of
        instrument()

    def describe(self, address: str) -> list[str]:
        endpoints = {signal: endpoint_of(signal.upper()) for signal in SIGNALS}
        return [
            f"{signal}: contacts {without_password(endpoint)}"
            for signal, endpoint in endpoints.items()
            if endpoint
        ]

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Continue the trace in the caller's `traceparent` header."""

        async def traced(scope: Scope, receive: Receive, send: Send) -> None:
            headers = {name.decode(): text.decode("latin-1") for name, text in scope["headers"]}
            token = context.attach(propagate.extract(headers))
            try:
                await app(scope, receive, send)
            finally:
                context.detach(token)

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            # A span means that an instrumentation has already continued the trace.
            is_traced = trace.get_current_span().get_span_context().is_valid
            is_request = scope["type"] == "http" and not is_traced
            await (traced if is_request else app)(scope, receive, send)

        return respond

    @asynccontextmanager
    async def around(self, turn: Turn) -> AsyncIterator[None]:
        with self.metrics.of_turn(turn), turn_span(turn):
            remember_trace()
            yield

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        self.metrics.begin(turn)

    async def close(self) -> None:
        """Send the remaining spans and metrics, within a second."""
        providers = (trace.get_tracer_provider(), metrics.get_meter_provider())
        flushes = [it.force_flush for it in providers if hasattr(it, "force_flush")]
        # Daemons: the process does not wait ten seconds for an endpoint that is down.
        threads = [Thread(target=flush, args=(1000,), daemon=True) for flush in flushes]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 1
        for thread in threads:
            await asyncio.to_thread(thread.join, max(0, end - time.monotonic()))


def _has_provider() -> bool:
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
