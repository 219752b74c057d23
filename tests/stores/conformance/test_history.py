"""tests/conformance/test_history.py, with a store."""

from tests.conformance.test_history import *  # noqa: F403
