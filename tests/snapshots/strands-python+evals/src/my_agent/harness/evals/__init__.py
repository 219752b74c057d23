"""Evals: the cases in evals/, and the command that runs them."""
