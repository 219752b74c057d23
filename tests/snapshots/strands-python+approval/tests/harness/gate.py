"""Lets the tool word_count ask for an approval."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from strands.vended_interventions.hitl import HumanInTheLoop

from my_agent import agent


@contextmanager
def ask_for_approval() -> Iterator[None]:
    """Let each call of a tool ask for an approval."""
    with patch.object(
        agent,
        "INTERVENTIONS",
        [HumanInTheLoop()],
        create=True,
    ):
        yield


@contextmanager
def lift_gate() -> Iterator[None]:
    """Let no call ask for an approval."""
    with patch.object(agent, "INTERVENTIONS", []):
        yield
