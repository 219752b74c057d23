"""tests/conformance/test_shutdown.py, with a store."""

from tests.conformance.test_shutdown import *  # noqa: F403
