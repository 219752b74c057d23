"""Lets the tool word_count ask for an approval."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from my_agent import agent


@contextmanager
def ask_for_approval() -> Iterator[None]:
    """Let each call of word_count ask for an approval."""
    with patch.object(
        agent.word_count.tool,
        "require_approval",
        True,
    ):
        yield


@contextmanager
def lift_gate() -> Iterator[None]:
    """Let no call ask for an approval."""
    with patch.object(agent.word_count.tool, "require_approval", False):
        yield
