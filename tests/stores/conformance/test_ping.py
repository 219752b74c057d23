"""tests/conformance/test_ping.py, with a store."""

from tests.conformance.test_ping import *  # noqa: F403
