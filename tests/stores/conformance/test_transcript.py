"""tests/conformance/test_transcript.py, with a store."""

from tests.conformance.test_transcript import *  # noqa: F403
