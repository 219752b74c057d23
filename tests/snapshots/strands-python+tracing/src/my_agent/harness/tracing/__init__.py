"""Traces by OpenTelemetry: a span for each turn; below it model calls, tools, store and memory."""
