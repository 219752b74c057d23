"""tests/conformance/test_origin.py, with a store."""

from tests.conformance.test_origin import *  # noqa: F403
