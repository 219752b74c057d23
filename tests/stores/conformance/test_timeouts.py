"""tests/conformance/test_timeouts.py, with a store."""

from tests.conformance.test_timeouts import *  # noqa: F403
