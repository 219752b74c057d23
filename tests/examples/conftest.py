"""Fixtures: the releases."""

from tests.updates.conftest import history

__all__ = ["history"]
