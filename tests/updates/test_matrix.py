"""From every release to the working tree: nothing of the template is missing, nothing is lost."""

import shutil
from collections.abc import Collection
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from hooks.releases import releases
from hooks.variants import STORES, TARGETS, VARIANTS
from tests.conftest import ROOT
from tests.updates.commands import bash, mend, programs
from tests.updates.edits import OWN_STORES, edit, edited
from tests.updates.history import (
    MISSING,
    NEWEST,
    History,
    commit,
    git,
    offered,
    one_framework_of,
    rows,
    update,
)
from tests.updates.own_tests import pass_once, tree_of

ROWS = rows()
MARKER = b"<<<<<<< before updating"
# What a usual run has of each release; of one that is not named here, what stands below LATER.
LATER = "later"
SAMPLES = {
    "0.1.0": {"strands-python"},
    "0.2.0": set[str](),
    "0.3.0": {"strands-typescript+valkey"},
    "0.4.0": {"strands-python+valkey+agentcore", "vercel-typescript+valkey"},
    LATER: {
        "strands-python+valkey+agentcore",
        "strands-typescript+s3",
        "vercel-python",
    },
}
UNTOUCHED = {"strands-python", "vercel-typescript+valkey"}
TESTED = {"strands-typescript+s3", "vercel-python"}


def sampled(
    only: Collection[str] = VARIANTS, of: Collection[str] = (), test: str = ""
) -> list[ParameterSet]:
    """Each row of the matrix; marked, unless a usual run has it.

    A usual run has some variants, if they are also in `only`, of all releases or of those in `of`.
    The weekly run has all others, but of a `test` each option in one framework.
    """
    found = []
    weekly = one_framework_of(test) if test else ROWS
    for release, variant in ROWS:
        is_usual = variant in SAMPLES.get(release, SAMPLES[LATER]) and variant in only
        is_usual = is_usual and (not of or release in of)
        if not is_usual and (release, variant) not in weekly:
            continue
        found.append(pytest.param(release, variant, marks=[] if is_usual else [pytest.mark.full]))
    return found


def unmerged(project: Path) -> str:
    return git(project, "diff", "--name-only", "--diff-filter=U")


def changed(history: History, release: str, variant: str) -> Path:
    """A project with edits, updated; to read only."""

    def make(folder: Path) -> None:
        project = history.project(folder, release, variant)
        edit(project, variant)
        update(project)

    return history.once(f"changed/{release}/{variant}", make)


def conflicts_of(release: str, variant: str) -> set[str]:
    """Where an owner's package stood between clients of stores, which are optional by now."""
    options = {*variant.split("+")[1:]}
    moved = {"0.3.0": {*STORES}, "0.4.0": {"agentcore"}}.get(release, set())
    return {"package.json"} if "typescript" in variant and options & moved else set()


def assert_kept(history: History, release: str, variant: str) -> None:
    """Its update is a fresh copy with the same edits, byte for byte, and has no other conflict."""
    project, conflicts = changed(history, release, variant), conflicts_of(release, variant)
    assert {*unmerged(project).split()} == conflicts
    tree = {path: data for path, data in tree_of(project).items() if path not in conflicts}
    assert [path for path, data in tree.items() if MARKER in data.splitlines()] == []
    wanted = edited(tree_of(history.copied(NEWEST, variant)), variant)
    assert tree.keys() == wanted.keys() - conflicts
    assert [path for path in tree if tree[path] != wanted[path]] == []


@pytest.mark.slow
@pytest.mark.parametrize(("release", "variant"), sampled())
def test_edits_and_files_of_an_owner_survive(release: str, variant: str, history: History) -> None:
    assert_kept(history, release, variant)


@pytest.mark.slow
@pytest.mark.parametrize(("release", "variant"), sampled(UNTOUCHED, test="untouched"))
def test_an_untouched_project_becomes_a_fresh_copy(
    release: str, variant: str, history: History, tmp_path: Path
) -> None:
    project = history.project(tmp_path / "project", release, variant)
    update(project)
    assert tree_of(project) == tree_of(history.copied(NEWEST, variant))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "variant"), sampled(TESTED, {row[0] for row in ROWS[-1:]}, "tested")
)
def test_an_updated_project_passes_its_tests_and_its_owners(
    release: str, variant: str, history: History, tmp_path: Path
) -> None:
    source = changed(history, release, variant)
    project = Path(shutil.copytree(source, tmp_path / "project", symlinks=True))
    if conflicts_of(release, variant):
        mend(project, ["package.json"], "0.6.0", "node")
    pass_once(history, variant.partition("+")[0], project)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize(
    "target", ["strands-python", pytest.param("strands-typescript", marks=pytest.mark.full)]
)
def test_own_stores_are_shown_as_deleted_and_carried_over_to_own_memory(
    target: str, history: History, tmp_path: Path
) -> None:
    ours = OWN_STORES[target]
    for answers in ({}, {"long_term_memory": "agentcore"}):
        project = history.project(tmp_path / f"project{len(answers)}", "0.4.0", f"{target}+valkey")
        file = project / ours.path
        file.write_text(ours.of(file.read_text("utf-8")), "utf-8")
        commit(project, "A store of our own")
        update(project, **answers)
        assert unmerged(project) == ""
        assert ours.new in git(project, "diff", "HEAD", "--diff-filter=D", "--", ours.path)
        if answers:
            command = f"uv run --no-project {history.template}/hooks/carry_over.py"
            result = bash(command, project, PATH=programs(tmp_path / "bin"))
            assert result.returncode == 0, result.stderr
            rejected = file.parents[1] / f"own_memory{file.suffix}.rej"
            assert ours.new in rejected.read_text("utf-8")


@pytest.mark.slow
def test_a_project_of_the_last_release_is_updated(history: History) -> None:
    """The samples of the last release have no plain project of this target."""
    assert_kept(history, releases(ROOT)[-1].version, TARGETS[0])


def test_every_target_is_updated_from_its_first_release_on() -> None:
    if not ROWS:
        pytest.skip(f"this is a clone {MISSING}")
    listed = [release.version for release in releases(ROOT)]
    assert len(listed) >= 3
    for target in TARGETS:
        having = [release for release in listed if target in offered(release)]
        assert having == listed[-len(having) :], f"{target} went away after a release"
        assert having, f"{target} is in no release"
