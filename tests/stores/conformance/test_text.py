"""tests/conformance/test_text.py, with a store."""

from tests.conformance.test_text import *  # noqa: F403
