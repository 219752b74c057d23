"""Fixtures: the releases, and what a project of one of them is made into."""

import pytest

from tests.conformance.conftest import backing, provider  # noqa: F401 (fixtures)
from tests.updates.history import MISSING, History, rows, shared_folder


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    if not rows():
        pytest.skip(f"this is a clone {MISSING}")
    return History(shared_folder(tmp_path_factory))
