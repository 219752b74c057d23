"""The table of the matrix, which the tests write to .cache/updates.md."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass

from filelock import FileLock

from tests.conftest import ROOT
from tests.updates.history import NEWEST

TABLE = ROOT / ".cache" / "updates.md"
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
HEAD = ["from", "target", "variant", "edits", "conflicts", "result"]


@dataclass
class Row:
    """One update: what it was of, and what came of it."""

    release: str
    target: str
    variant: str
    edits: str
    conflicts: str = "none"
    result: str = "FAILED"


@contextmanager
def row(release: str, variant: str, edits: str) -> Iterator[Row]:
    """The row of one update; it is written in any case, and says FAILED until it is told more."""
    target, _, option = variant.partition("+")
    line = Row("now" if release == NEWEST else release, target, option or "-", edits)
    try:
        yield line
    finally:
        write(line)


def write(line: Row) -> None:
    """Add a row to those of this run, and write the table anew."""
    TABLE.parent.mkdir(exist_ok=True)
    kept = TABLE.with_suffix(".json")
    with FileLock(f"{kept}.lock"):
        before = json.loads(kept.read_text()) if kept.exists() else {}
        rows = [*(before["rows"] if before.get("run") == RUN else []), asdict(line)]
        kept.write_text(json.dumps({"run": RUN, "rows": rows}))
        lines = sorted(astuple(Row(**values)) for values in rows)
        table = [HEAD, ["---"] * len(HEAD), *lines]
        TABLE.write_text("".join(f"| {' | '.join(cells)} |\n" for cells in table))
