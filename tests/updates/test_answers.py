"""An answer that is changed later adds and removes a whole capability."""

from pathlib import Path

import pytest

from hooks.loading import load
from hooks.variants import VARIANTS, base_of
from tests.conftest import ROOT
from tests.matrix import ALONE, Row, When, capability_of, params
from tests.updates.commands import bash, copier, named
from tests.updates.edits import edit, edited
from tests.updates.history import NEWEST, History, commit, git
from tests.updates.own_tests import pass_once, tree_of

pytestmark = pytest.mark.slow
NOTE = b"\nA line of the bookshop.\n"
SWITCH = ["update", "--defaults", "-r", ":current:", "-d"]
QUESTIONS = load(ROOT).questions


@pytest.mark.job("switched")
@pytest.mark.parametrize("row", params(ALONE, "switched"))
def test_a_capability_is_added_and_taken_away(row: Row, history: History, tmp_path: Path) -> None:
    variant, base = row.name, base_of(row.name)
    assert base is not None
    question = capability_of(variant)
    without = QUESTIONS[question]["default"]
    project = history.project(tmp_path / "project", NEWEST, base)
    edit(project, base)
    before = tree_of(project)
    value = VARIANTS[variant][question]
    readme = (project / "README.md").read_text("utf-8")
    if question == "session_store":
        assert f"`uvx copier {' '.join(SWITCH)} {question}=valkey`" in " ".join(readme.split())

    copier(*SWITCH, f"{question}={value}", cwd=project)
    after = tree_of(project)
    assert after == edited(tree_of(history.copied(NEWEST, variant)), base)
    if row.switched is When.WEEKLY:
        pass_once(history, base.partition("+")[0], project)
    commit(project, "The capability")

    # A file that came with it, with a line of the owner's in it.
    note = min(after.keys() - before.keys())
    (project / note).write_bytes(after[note] + NOTE)
    commit(project, "A line of our own in it")
    said = copier(*SWITCH, f"{question}={without}", cwd=project)
    assert tree_of(project) == before, "nothing else is gone, and nothing is left"
    for text in (said, readme):
        shown = bash(named(text, "git diff HEAD --diff-filter=D"), project).stdout
        assert f"--- a/{note}" in shown
        assert f"-{NOTE.decode().strip()}" in shown
    git(project, "checkout", "HEAD", "--", note)
    assert (project / note).read_bytes().endswith(NOTE), "as the message says"
