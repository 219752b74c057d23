"""tests/conformance/test_end_session.py, with a store."""

from tests.conformance.test_end_session import *  # noqa: F403
