"""Which run does a job with which render, as the tests say: `python -m tests.support.jobs FOLDER…`.

A test is marked `job(name, …)`. Its render is its parameter `row`, or it has those of `rows`.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout

import pytest

from tests.matrix import Row, When


def names_of(item: pytest.Item, mark: pytest.Mark) -> Iterator[str]:
    """The names of the renders that a test does a job with."""
    if "rows" in mark.kwargs:
        yield from (row.name for row in mark.kwargs["rows"])
    else:
        assert isinstance(item, pytest.Function)
        row = item.callspec.params["row"]
        assert isinstance(row, Row)
        yield row.name


class Jobs:
    """A plugin that keeps the run of each job by render: every run where a usual test does it."""

    def __init__(self) -> None:
        """Begin with no test."""
        self.found: dict[str, dict[str, When]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Read the marks, with those that the usual run adds to its samples."""
        for item in items:
            when = When.WEEKLY if item.get_closest_marker("full") else When.EVERY_RUN
            for mark in item.iter_markers("job"):
                for job in mark.args:
                    runs = self.found.setdefault(job, {})
                    for name in names_of(item, mark):
                        if runs.get(name) is not When.EVERY_RUN:
                            runs[name] = when


if __name__ == "__main__":
    jobs = Jobs()
    options = ["-n0", "--collect-only", "-qq", "-m", ""]
    with redirect_stdout(sys.stderr):
        code = pytest.main([*options, *sys.argv[1:]], plugins=[jobs])
    print(json.dumps(jobs.found))
    sys.exit(code)
