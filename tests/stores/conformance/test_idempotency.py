"""tests/conformance/test_idempotency.py, with a store."""

from tests.conformance.test_idempotency import *  # noqa: F403
