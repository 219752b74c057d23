"""Rows that a run leaves out are not collected, and no other."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.rows import collected

EVERY = pytest.param("every day")
USUAL = pytest.param("usual", marks=pytest.mark.slow)
FULL = pytest.param("full", marks=[pytest.mark.slow, pytest.mark.full])


@pytest.mark.parametrize(
    ("expression", "kept"),
    [
        ("", [EVERY, USUAL, FULL]),
        ("full", [EVERY, USUAL, FULL]),
        ("slow or full", [EVERY, USUAL, FULL]),
        ("not full", [EVERY, USUAL]),
        ("not slow", [EVERY]),
        ("not full and not slow", [EVERY, USUAL, FULL]),
    ],
)
def test_only_rows_that_are_left_out_are_not_collected(expression: str, kept: list[Any]) -> None:
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=expression))
    assert collected(config, [EVERY, USUAL, FULL]) == kept


def test_one_row_stays_where_all_are_left_out() -> None:
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr="not full"))
    assert collected(config, [FULL, FULL]) == [FULL]
