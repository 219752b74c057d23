"""Session stores from outside: real servers, rendered agents, and every fault between them.

A usual run has the core of it: each language meets each store. Every test here for every target
and every store:

    uv run pytest -m "slow or full" tests/stores
"""
