"""What owners do most meets no update: not one conflict in the files that all of them edit."""

import itertools
import json
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from filelock import FileLock

from hooks.variants import TARGETS
from tests.conftest import ROOT
from tests.updates.history import NEWEST, History, commit, update
from tests.updates.own_tests import pass_once
from tests.updates.owners import assert_own, conflicts, own

pytestmark = pytest.mark.slow
TABLE = ROOT / ".cache" / "conflicts.json"
# A way through the answers, each step one update: on, changed, off.
WAY = [
    ("in-process", "none"),
    ("valkey", "none"),
    ("s3", "none"),
    ("custom", "none"),
    ("custom", "agentcore"),
    ("in-process", "agentcore"),
    ("in-process", "none"),
    ("valkey", "agentcore"),
]
USUAL = {"strands-python", "vercel-typescript"}
TESTED = {("strands-python", "valkey"), ("vercel-typescript", "custom")}


def note(row: str, unmerged: list[str]) -> None:
    """Add a row to the table of conflicts."""
    TABLE.parent.mkdir(exist_ok=True)
    with FileLock(f"{TABLE}.lock"):
        table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
        TABLE.write_text(json.dumps(table | {row: unmerged}, indent=1))


def targets() -> list[ParameterSet]:
    return [pytest.param(one, marks=[] if one in USUAL else [pytest.mark.full]) for one in TARGETS]


@pytest.mark.parametrize("target", targets())
def test_a_capability_comes_changes_and_goes_without_a_conflict(
    target: str, history: History, tmp_path: Path
) -> None:
    project = history.project(tmp_path / "project", NEWEST, target)
    own(project, target)
    for before, (store, memory) in itertools.pairwise(WAY):
        update(project, session_store=store, long_term_memory=memory)
        unmerged = conflicts(project)
        note(f"{target}: {', '.join(before)} -> {store}, {memory}", unmerged)
        assert unmerged == []
        assert_own(project, target, unmerged)
        if (target, store) in TESTED and memory == "none":
            pass_once(history, target, project)
        commit(project, f"{store} and {memory}")
