"""Callers that a token names: who they are, and how much they may ask for."""
