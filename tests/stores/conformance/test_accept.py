"""tests/conformance/test_accept.py, with a store."""

from tests.conformance.test_accept import *  # noqa: F403
