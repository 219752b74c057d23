"""OpenTelemetry traces: a span for each turn; below it model calls, tools, store and memory."""
