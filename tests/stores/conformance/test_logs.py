"""tests/conformance/test_logs.py, with a store."""

from tests.conformance.test_logs import *  # noqa: F403
