"""Fixtures: the releases, and a browser."""

from tests.ui.conftest import browser
from tests.updates.conftest import history

__all__ = ["browser", "history"]
