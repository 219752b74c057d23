"""Pending tool calls, which a person approves or denies."""
