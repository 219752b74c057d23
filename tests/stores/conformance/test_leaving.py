"""tests/conformance/test_leaving.py, with a store."""

from tests.conformance.test_leaving import *  # noqa: F403
