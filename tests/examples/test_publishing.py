"""Publishing an example: a release makes a commit of its repository, and its users can update."""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hooks import examples
from tests.conftest import ROOT
from tests.template.test_hooks import Hooks, hooks
from tests.updates.commands import bash
from tests.updates.history import NEWEST, History, commit, git, update
from tests.updates.own_tests import tree_of

__all__ = ["hooks"]  # a fixture

NAME, LATER = "order-desk", "9999.1"
NAMES = examples.names(ROOT)
pytestmark = pytest.mark.slow


@pytest.fixture
def root(history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of the template at a release, with the examples, which is the current folder."""
    root = tmp_path / "template"
    shutil.copytree(history.template, root, symlinks=True)
    for name in NAMES:
        shutil.copytree(ROOT / examples.FOLDER / name, root / examples.FOLDER / name)
    commit(root, "The examples")
    git(root, "tag", "--force", NEWEST)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """An empty repository to publish to."""
    path = tmp_path / "published.git"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(path))
    return path


def release(root: Path) -> None:
    """Make a release in which the template, and the owner of the example, have a new line."""
    ignored = root / "template" / "python" / ".gitignore"
    ignored.write_text(f"build/\n{ignored.read_text()}")
    orders = root / examples.FOLDER / NAME / "src" / "app" / "orders.py"
    orders.write_text(orders.read_text().replace("a blue teapot", "a green teapot"))
    commit(root, "Another release")
    git(root, "tag", LATER)


def messages(repository: Path) -> list[str]:
    return git(repository, "log", "--format=%s", "main").splitlines()


@pytest.mark.full
def test_each_release_is_a_commit_and_users_update_their_projects(
    root: Path, repository: Path, hooks: Hooks, tmp_path: Path
) -> None:
    def publish(folder: str) -> str:
        words = ("example", NAME, str(tmp_path / folder), "--source", str(root))
        result = hooks(*words, "--push", str(repository))
        assert (result.code, result.err) == (0, "")
        return result.out

    assert f"{repository} has {NEWEST}" in publish("first")
    assert f"{repository} had {NEWEST}" in publish("again"), "nothing has changed"
    assert messages(repository) == [f"Version {NEWEST} of the template"]

    # "Use this template" copies the files, and begins a new history.
    own = tmp_path / "own"
    git(tmp_path, "clone", "--quiet", str(repository), str(own))
    shutil.rmtree(own / ".git")
    git(own, "init", "--quiet")
    agent = own / "src" / "app" / "agent.py"
    agent.write_text(agent.read_text().replace("a shop for tea", "our shop for tea"))
    commit(own, "Ours")

    release(root)
    publish("second")
    said = [f"Version {version} of the template" for version in (LATER, NEWEST)]
    assert messages(repository) == said, "the history is kept"
    update(own, LATER)
    assert git(own, "diff", "--name-only", "--diff-filter=U") == ""
    assert (own / ".gitignore").read_text().startswith("build/\n")
    assert "our shop for tea" in agent.read_text()
    assert "a blue teapot" in (own / "src" / "app" / "orders.py").read_text(), "it is the user's"
    git(tmp_path, "clone", "--quiet", str(repository), str(tmp_path / "clone"))
    assert tree_of(tmp_path / "clone") == tree_of(tmp_path / "second")


def test_only_releases_are_published(
    root: Path, repository: Path, hooks: Hooks, tmp_path: Path
) -> None:
    words = ("example", NAME, str(tmp_path / "new"), "--push", str(repository))
    (root / "copier.yml").write_text((root / "copier.yml").read_text() + "\n")
    hooks(*words).refused(1, "only a release can be published")
    commit(root, "Not tagged")
    hooks(*words).refused(1, "only a release can be published")
    assert not (tmp_path / "new").exists()
    assert git(repository, "for-each-ref") == ""


def test_an_example_of_a_commit_between_releases_names_it_as_copier_does(
    root: Path, hooks: Hooks, tmp_path: Path
) -> None:
    commit(root, "After the release")
    assert hooks("example", NAME, str(tmp_path / "new")).out == f"{NAME} is in {tmp_path / 'new'}\n"
    recorded = yaml.safe_load((tmp_path / "new" / ".copier-answers.yml").read_text())
    assert re.fullmatch(rf"{NEWEST}-1-g[0-9a-f]+", recorded["_commit"])
    assert recorded["_src_path"] == "gh:org/agent-template"


def test_a_change_that_does_not_fit_is_one_line_that_names_it(
    root: Path, hooks: Hooks, tmp_path: Path
) -> None:
    folder = root / examples.FOLDER
    patch = folder / "support-widget" / "tsconfig.json.patch"
    patch.write_text(patch.read_text().replace("skipLibCheck", "skipNothing"))
    refused = hooks("example", "support-widget", str(tmp_path / "new"))
    refused.refused(1, "support-widget/tsconfig.json.patch: error: patch failed")
    (folder / NAME / "README.md").write_text("# Another title\n")
    refused = hooks("example", NAME, str(tmp_path / "new"))
    refused.refused(1, "order-desk/README.md does not begin with '# order-desk'")
    hooks("example", "none", str(tmp_path / "new")).refused(2, "use one of order-desk, ")
    assert not (tmp_path / "new").exists()


def jobs() -> dict[str, Any]:
    text = (ROOT / ".github" / "workflows" / "examples.yml").read_text("utf-8")
    found: dict[str, Any] = yaml.safe_load(text)["jobs"]
    return found


def test_the_workflow_publishes_every_example() -> None:
    assert jobs()["publish"]["strategy"]["matrix"]["name"] == NAMES


@pytest.mark.parametrize("token", ["", "secret"])
def test_without_the_secret_the_workflow_says_that_it_publishes_nothing(
    token: str, tmp_path: Path
) -> None:
    (step,) = jobs()["ready"]["steps"]
    output = tmp_path / "output"
    output.touch()
    done = bash(step["run"], tmp_path, EXAMPLES_TOKEN=token, GITHUB_OUTPUT=str(output))
    assert done.returncode == 0, done.stderr
    assert output.read_text() == ("is-set=true\n" if token else "")
    assert ("EXAMPLES_TOKEN is not set" in done.stdout) == (token == "")
    assert jobs()["publish"]["if"] == "needs.ready.outputs.has-token == 'true'"


GH = """#!/bin/sh
echo "$@" >> "$COMMANDS"
[ "$1 $2" != "repo view" ]
"""


@pytest.mark.full
def test_the_script_of_the_workflow_pushes_to_the_repository_of_the_example(
    root: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for role in ("AUTHOR", "COMMITTER"):  # nobody has said who commits there
        monkeypatch.delenv(f"GIT_{role}_NAME")
        monkeypatch.delenv(f"GIT_{role}_EMAIL")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"gh": GH, "uv": '#!/bin/sh\nshift\nexec "$@"\n'}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    commands = tmp_path / "commands"
    variables = {
        "PATH": f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "COMMANDS": str(commands),
        "NAME": NAME,
        "REPOSITORY": "somebody/agent-template-order-desk",
        "GITHUB_REPOSITORY": "somebody/agent-template",
        "RUNNER_TEMP": str(tmp_path),
        # The address of the script is that of the test's own repository.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{repository}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/somebody/agent-template-order-desk",
    }
    done = bash(jobs()["publish"]["steps"][-1]["run"], root, **variables)
    assert done.returncode == 0, done.stderr
    assert messages(repository) == [f"Version {NEWEST} of the template"]
    recorded = git(repository, "show", "main:.copier-answers.yml")
    assert "_src_path: gh:somebody/agent-template\n" in recorded
    said = commands.read_text().splitlines()
    assert [line.partition(" somebody")[0] for line in said] == [
        "auth setup-git",
        "repo view",
        "repo create",
        "api --silent --method PATCH repos/somebody/agent-template-order-desk -F is_template=true",
    ]
    assert git(repository, "log", "--format=%an", "main") == "github-actions[bot]\n"
