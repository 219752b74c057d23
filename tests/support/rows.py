"""The rows of a test that a run collects."""

import pytest
from _pytest.mark import ParameterSet


def collected(config: pytest.Config, rows: list[ParameterSet]) -> list[ParameterSet]:
    """The rows without those that `-m "not full"` or `-m "not slow"` would leave out again.

    There are ten times as many, and each test process collects all. Where none is left, one stays
    to be left out: of no rows at all pytest makes a test that is skipped.
    """
    expression = config.option.markexpr
    kept = [row for row in rows if expression not in {f"not {mark.name}" for mark in row.marks}]
    return kept or rows[:1]
