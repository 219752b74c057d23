"""tests/conformance/test_errors.py, with a store."""

from tests.conformance.test_errors import *  # noqa: F403
