"""Metrics for a cluster."""
