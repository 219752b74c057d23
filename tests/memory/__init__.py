"""Scenarios of long-term memory: the same for all targets, against a server of AgentCore Memory."""
