"""From every release to the working tree: nothing of the template is missing, nothing is lost."""

from pathlib import Path

import pytest

from hooks.releases import releases
from hooks.variants import VARIANTS
from tests.conftest import ROOT
from tests.updates.edits import edit, edited
from tests.updates.history import MISSING, NEWEST, History, git, offered, rows, update
from tests.updates.own_tests import pass_once, tree_of
from tests.updates.table import row


def is_model(variant: str) -> bool:
    """Whether an option is another model only."""
    return "model" in VARIANTS[variant]


ROWS = rows()
# Each answer of `model` once; the soak has every target with each.
USUAL = {"strands-python+anthropic", "vercel-python+bedrock", "vercel-typescript+gateway"}
USUAL |= {"strands-typescript+openai", "strands-python+openai-compatible"}
every = pytest.mark.parametrize(
    ("release", "variant"),
    [
        pytest.param(
            *row, marks=[pytest.mark.soak] if is_model(row[1]) and row[1] not in USUAL else []
        )
        for row in ROWS
    ],
)
MARKER = b"<<<<<<< before updating"


def unmerged(project: Path) -> str:
    return git(project, "diff", "--name-only", "--diff-filter=U")


def untouched(history: History, folder: Path, release: str, variant: str) -> None:
    """Update a project that nobody touched, and compare it with a fresh copy, byte for byte."""
    project = history.project(folder, release, variant)
    update(project)
    assert tree_of(project) == tree_of(history.copied(NEWEST, variant))


def changed(history: History, folder: Path, release: str, variant: str) -> Path:
    """Update a project with edits, and compare it with a fresh copy with the same edits."""
    target = variant.partition("+")[0]
    project = history.project(folder, release, variant)
    edit(project, target)
    update(project)
    assert unmerged(project) == ""
    tree = tree_of(project)
    assert [path for path, data in tree.items() if MARKER in data.splitlines()] == []
    assert tree == edited(tree_of(history.copied(NEWEST, variant)), target)
    return project


@pytest.mark.slow
@every
def test_an_untouched_project_becomes_a_fresh_copy_and_edits_survive(
    release: str, variant: str, history: History, tmp_path: Path
) -> None:
    with row(release, variant, "none") as none, row(release, variant, "all") as all:
        untouched(history, tmp_path / "untouched", release, variant)
        none.result = "equals a fresh copy"  # whose own tests are run by tests/test_rendered*.py
        ours = changed(history, tmp_path / "changed", release, variant)
        all.result = "a fresh copy with the edits; its own tests FAIL"
        pass_once(history, variant, ours)
        all.result = all.result.replace("FAIL", "pass")


def test_a_project_of_the_last_release_is_updated(history: History, tmp_path: Path) -> None:
    """The core of the matrix, for every day."""
    last, variant = releases(ROOT)[-1].version, next(iter(VARIANTS))
    changed(history, tmp_path / "project", last, variant)


def test_every_target_is_updated_from_its_first_release_on() -> None:
    if not ROWS:
        pytest.skip(f"this is a clone {MISSING}")
    listed = [release.version for release in releases(ROOT)]
    assert len(listed) >= 3
    for target in [variant for variant in VARIANTS if "+" not in variant]:
        having = [release for release in listed if target in offered(release)]
        assert having == listed[-len(having) :], f"{target} went away after a release"
        assert having, f"{target} is in no release"
