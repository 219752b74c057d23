"""Clients of models, and what every model has in common."""
