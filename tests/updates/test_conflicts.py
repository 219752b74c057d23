"""Where both sides changed the same line, and only there: markers that somebody is told of."""

import itertools
import shutil
from pathlib import Path

import pytest

from hooks.releases import releases
from hooks.variants import TARGETS
from tests.conftest import ROOT
from tests.updates.commands import bash, copier, named, script
from tests.updates.edits import OUR_PROMPT, PROMPT, edit, edited
from tests.updates.history import NEWEST, History, commit, git
from tests.updates.own_tests import tree_of

LATER = "9999.1"
THEIR_PROMPT = "You are a helpful assistant. Answer at length."
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def later(history: History) -> History:
    """The releases, and one after the working tree that has another prompt."""

    def make(folder: Path) -> None:
        shutil.copytree(history.template, folder, symlinks=True)
        agents = [path for path in (folder / "template").rglob("agent.*") if path.is_file()]
        for path in agents:
            text = path.read_text("utf-8")
            path.write_text(text.replace(PROMPT, THEIR_PROMPT), "utf-8")
        commit(folder, "Another prompt")
        git(folder, "tag", LATER)

    other = History(history.folder / "later-copies")
    other.template = history.once("later", make)
    return other


def grep(project: Path, text: str) -> list[str]:
    """The files that the command for conflicts in `text` names."""
    found = bash(named(text, "git grep"), project).stdout.splitlines()
    return [line.partition(":")[0] for line in found]


LAST = releases(ROOT)[-1].version
USUAL = {(NEWEST, "vercel-typescript")}


@pytest.mark.parametrize(
    ("release", "target"),
    [
        pytest.param(*row, marks=[] if row in USUAL else [pytest.mark.full])
        for row in itertools.product([LAST, NEWEST], TARGETS)
    ],
)
def test_a_line_that_both_sides_changed_is_a_conflict_and_nothing_else_is(
    release: str, target: str, later: History, tmp_path: Path
) -> None:
    project = later.project(tmp_path / "project", release, target)
    edit(project, target)
    guard = script(project, "ci.yml", "git grep")
    assert bash(guard, project).returncode == 0, "before, there is no conflict"

    said = copier("update", "--defaults", "-r", LATER, cwd=project)
    assert f"my-agent is up to date, from {release} to {LATER}.\n" in said
    assert f"steps that you have to take: {later.template}/CHANGELOG.md\n" in said
    is_python = target.endswith("-python")
    lock, renew = ("uv.lock", "uv lock") if is_python else ("package-lock.json", "npm install")
    assert f"If {lock} is in git, renew it, or CI fails: {renew}\n" in said
    (agent,) = grep(project, said)
    tree, wanted = tree_of(project), edited(tree_of(later.copied(NEWEST, target)), target)
    answers = ".copier-answers.yml"
    different = {path for path in tree.keys() | wanted if tree.get(path) != wanted.get(path)}
    assert different == {agent, answers}
    text = tree[agent].decode()
    ours = text.index(OUR_PROMPT)
    assert text.index("<<<<<<< before updating") < ours < text.index(THEIR_PROMPT)
    assert text.count("<<<<<<<") == 1

    readme = (project / "README.md").read_text("utf-8")
    assert f"Update `{lock}` with `{renew}`: CI fails if it is out of date.\n" in readme
    assert grep(project, readme) == [agent]
    assert grep(project, (project / "AGENTS.md").read_text("utf-8")) == [agent]
    assert git(project, "diff", "--name-only", "--diff-filter=U").split() == [agent]
    commit(project, "Committed without a look")
    assert grep(project, readme) == [agent], "which Git has forgotten"
    failed = bash(script(project, "ci.yml", "git grep"), project)
    assert failed.returncode == 1
    assert agent in failed.stdout


@pytest.mark.full
def test_an_update_names_the_changelog_on_github(
    later: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = later.project(tmp_path / "project", NEWEST, "strands-python")
    answers = project / ".copier-answers.yml"
    text = answers.read_text("utf-8")
    answers.write_text(text.replace(str(later.template), "gh:org/agent-template"), "utf-8")
    commit(project, "As a copy from GitHub says")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.{later.template}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://github.com/org/agent-template.git")
    said = copier("update", "--defaults", "-r", ":current:", "-d", "model=openai", cwd=project)
    assert f"my-agent is up to date, at {NEWEST}.\n" in said
    assert "to take: https://github.com/org/agent-template/blob/HEAD/CHANGELOG.md\n" in said


@pytest.mark.full
def test_own_text_in_a_section_that_moved_to_docs_is_shown_as_a_conflict(
    history: History, tmp_path: Path
) -> None:
    project = history.project(tmp_path / "project", "0.7.0", "strands-python")
    readme, index = project / "README.md", project / "docs" / "README.md"
    text = readme.read_text("utf-8")
    section = "\n## Sessions\n"
    assert section in text
    readme.write_text(text.replace(section, f"{section}\nThe bookshop keeps a session.\n"), "utf-8")
    index.parent.mkdir()
    index.write_text("# Documents of the bookshop\n", "utf-8")
    commit(project, "Our own texts")
    copier("update", "--defaults", cwd=project)
    unmerged = git(project, "diff", "--name-only", "--diff-filter=U").split()
    assert unmerged == ["README.md", "docs/README.md"]
    for file, own in ((readme, "The bookshop keeps a session."), (index, "# Documents of the")):
        before, after = (
            file.read_text("utf-8").split("<<<<<<< before updating\n")[1].split("=====\n")
        )
        assert own in before
        assert own not in after
