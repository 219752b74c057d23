"""Evals: cases that say what the agent is expected to do, and the command that tries them."""
