"""Lets the tool word_count ask for an approval."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from strands.vended_interventions.hitl import HumanInTheLoop


@contextmanager
def ask_for_approval() -> Iterator[None]:
    """Let each call of a tool ask for an approval."""
    with patch("app.agent.INTERVENTIONS", [HumanInTheLoop()], create=True):
        yield
