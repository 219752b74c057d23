"""Session stores from outside: real servers, rendered agents, and every fault between them.

A usual run has the core of it. The soak is every test here for every target and every store, and
the conformance suite with each of them (tests/stores/conformance):

    uv run pytest -m "slow or soak" tests/stores
"""
