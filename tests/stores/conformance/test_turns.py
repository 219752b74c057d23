"""tests/conformance/test_turns.py, with a store."""

from tests.conformance.test_turns import *  # noqa: F403
