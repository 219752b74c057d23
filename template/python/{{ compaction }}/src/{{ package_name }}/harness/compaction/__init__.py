"""Summaries of the messages that a full session drops."""
