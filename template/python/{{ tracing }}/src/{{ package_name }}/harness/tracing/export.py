"""Exports spans and metrics to an endpoint for OTLP over HTTP."""

import logging
import os
from contextlib import suppress
from contextvars import Context
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from uuid import uuid4

from opentelemetry import metrics, trace

from ..settings import without_password

log = logging.getLogger(__name__)


def endpoint_of(signal: str) -> str:
    """Return the endpoint of TRACES or METRICS, or ""."""
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_disabled or os.environ.get(f"OTEL_{signal}_EXPORTER") == "none":
        return ""
    names = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return next(filter(None, map(os.environ.get, names)), "")


def export(service: str) -> None:
    """Set a provider for each signal with an endpoint."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    defaults = Resource.create().attributes  # with the name and version of the SDK
    sdk = {name: value for name, value in defaults.items() if name.startswith("telemetry.")}
    service_attributes = {"service.name": service, "service.instance.id": str(uuid4())}
    with suppress(PackageNotFoundError):
        service_attributes["service.version"] = version(service)
    resource = Resource({**sdk, **service_attributes}).merge(OTELResourceDetector().detect())
    _export_spans(resource)
    if endpoint_of("METRICS"):
        _export_metrics(resource)


def _export_spans(resource: Any) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if endpoint_of("TRACES"):
        exporter = _warning(OTLPSpanExporter(), "Traces", "spans")
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def _export_metrics(resource: Any) -> None:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    reader = PeriodicExportingMetricReader(_warning(OTLPMetricExporter(), "Metrics", "metrics"))
    metrics.set_meter_provider(MeterProvider([reader], resource, shutdown_on_exit=False))


def _warning(exporter: Any, signal: str, data: str) -> Any:
    """Make an exporter log a warning whenever it begins to fail."""
    send = exporter.export
    has_failed = False

    def export(*args: Any, **kwargs: Any) -> Any:
        nonlocal has_failed
        result = send(*args, **kwargs)
        if result.name != "SUCCESS" and not has_failed:
            endpoint = without_password(endpoint_of(signal.upper()))
            text = "%s: %s is not accepting %s; turns continue"
            Context().run(log.warning, text, signal, endpoint, data)  # outside any turn
        has_failed = result.name != "SUCCESS"
        return result

    exporter.export = export
    return exporter
