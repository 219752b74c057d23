"""An answer that is changed later adds and removes a whole capability."""

from pathlib import Path

import pytest

from hooks.loading import load
from hooks.template import Template
from hooks.variants import VARIANTS, base_of
from tests.conftest import ROOT
from tests.updates.commands import bash, copier, named
from tests.updates.edits import edit, edited
from tests.updates.history import NEWEST, History, commit, git
from tests.updates.own_tests import pass_once, tree_of
from tests.updates.table import row

pytestmark = pytest.mark.slow
NOTE = b"\nA line of the bookshop.\n"


def capabilities() -> list[tuple[str, str, str, str]]:
    """Each variant that only adds a capability to another: that one, and what to switch off."""
    template: Template = load(ROOT)
    found = []
    for variant, answers in VARIANTS.items():
        base = base_of(variant)
        more = {name for name in answers if base and name not in VARIANTS[base]} - {"model"}
        found += [(base or "", variant, name, template.questions[name]["default"]) for name in more]
    return found


@pytest.mark.parametrize(("base", "variant", "question", "without"), capabilities())
def test_a_capability_is_added_and_taken_away(
    base: str, variant: str, question: str, without: str, history: History, tmp_path: Path
) -> None:
    target = base.partition("+")[0]
    with row(NEWEST, variant, "all, and the capability on and off") as line:
        project = history.project(tmp_path / "project", NEWEST, base)
        edit(project, target)
        before = tree_of(project)
        value = VARIANTS[variant][question]
        switch = ["update", "--defaults", "-r", ":current:", "-d"]
        readme = (project / "README.md").read_text("utf-8")
        if question == "session_store":
            assert f"`uvx copier {' '.join(switch)} {question}={value}`" in readme

        copier(*switch, f"{question}={value}", cwd=project)
        after = tree_of(project)
        assert after == edited(tree_of(history.copied(NEWEST, variant)), target)
        pass_once(history, variant, project)
        commit(project, "The capability")

        # A file that came with it, with a line of the owner's in it.
        added = sorted(after.keys() - before.keys())
        note = added[0]
        (project / note).write_bytes(after[note] + NOTE)
        commit(project, "A line of our own in it")
        said = copier(*switch, f"{question}={without}", cwd=project)
        assert tree_of(project) == before, "nothing else is gone, and nothing is left"
        for text in (said, readme):
            shown = bash(named(text, "git diff HEAD --diff-filter=D"), project).stdout
            assert f"--- a/{note}" in shown
            assert f"-{NOTE.decode().strip()}" in shown
        assert git(project, "checkout", "HEAD", "--", note) == ""
        assert (project / note).read_bytes().endswith(NOTE), "as the message says"
        line.result = "added: nothing of the owner's touched; taken away: as before, and shown"
