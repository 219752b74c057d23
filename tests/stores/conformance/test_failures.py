"""tests/conformance/test_failures.py, with a store."""

from tests.conformance.test_failures import *  # noqa: F403
