"""tests/conformance/test_queue.py, with a store."""

from tests.conformance.test_queue import *  # noqa: F403
