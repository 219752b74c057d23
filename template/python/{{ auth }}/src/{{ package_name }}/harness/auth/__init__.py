"""Callers with tokens: identity and limits."""
