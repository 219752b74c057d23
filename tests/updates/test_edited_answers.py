"""Answers that an update must not follow: it refuses them, and says what to type instead."""

import subprocess
import sys
from pathlib import Path

import pytest

from hooks.releases import releases
from hooks.rendering import ANSWERS_FILE
from tests.conformance.targets import TARGETS
from tests.conftest import ROOT
from tests.updates.commands import copier, named
from tests.updates.history import NEWEST, History, commit, git, update

pytestmark = pytest.mark.slow
USUAL = ("vercel-typescript",)
CURRENT = ["update", "--defaults", "-r", ":current:"]
BY_NAME = [
    pytest.param(t.name, marks=[] if t.name in USUAL else [pytest.mark.full]) for t in TARGETS
]


def refused(project: Path, *words: str) -> str:
    """Run Copier's command line, which changes nothing, and return what it says at last."""
    line = [sys.executable, "-m", "copier", *words]
    result = subprocess.run(
        line, cwd=project, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert result.returncode == 1, result.stderr
    assert git(project, "status", "--porcelain") == ""
    return result.stderr.splitlines()[-1]


def replace(project: Path, old: str, new: str) -> None:
    file = project / ANSWERS_FILE
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), "utf-8")
    commit(project, f"{new} instead of {old}")


@pytest.mark.full
@pytest.mark.parametrize("release", [releases(ROOT)[-1].version, NEWEST])
def test_another_target_is_refused(release: str, history: History, tmp_path: Path) -> None:
    project = history.project(tmp_path / "project", release, "strands-python")
    said = refused(project, "update", "--defaults", "-d", "target=vercel-typescript")
    reason = "An update cannot change strands-python to vercel-typescript. Start a new project:"
    assert f": {reason} `uvx" in said, "a prompt shows 100 columns: the reason is first"
    tool, *words = named(said, "uvx copier copy").split()
    copier(*words[1:], "--defaults", "-d", "project_name=other", cwd=project)
    assert tool == "uvx"
    assert (tmp_path / "vercel-typescript-agent" / "src" / "agent.ts").exists()


@pytest.mark.full
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("session_store: in-process", "session_store: valkey"),
        *(
            pytest.param(*row, marks=pytest.mark.full)
            for row in (
                ("session_store: s3", "session_store: valkey"),
                ("long_term_memory: agentcore", "long_term_memory: none"),
                ("model: bedrock", "model: openai"),
            )
        ),
    ],
)
def test_an_answer_that_was_edited_by_hand_is_refused(
    old: str, new: str, history: History, tmp_path: Path
) -> None:
    name, _, value = old.partition(": ")
    answers = {name: value} if name != "model" else {}
    project = history.project(tmp_path / "project", NEWEST, "strands-python", **answers)
    before = (project / ANSWERS_FILE).read_text("utf-8")
    replace(project, old, new)
    said = refused(project, *CURRENT)
    assert new in said
    replace(project, new, old)
    assert (project / ANSWERS_FILE).read_text("utf-8") == before
    copier(*named(said, "uvx copier update").split()[2:], cwd=project)
    wanted = {name: new.partition(": ")[2]}
    fresh = history.copied(NEWEST, "strands-python", **wanted)
    assert (project / ANSWERS_FILE).read_text("utf-8") == (fresh / ANSWERS_FILE).read_text("utf-8")


@pytest.mark.full
def test_a_copy_from_a_relative_path_can_be_updated(history: History, tmp_path: Path) -> None:
    (tmp_path / "template").symlink_to(history.template)
    copier("copy", "--defaults", "-r", NEWEST, "template", "here/agent", cwd=tmp_path)
    project = tmp_path / "here" / "agent"
    git(project, "init", "--quiet")
    commit(project, "Copied")
    update(project, NEWEST, session_store="valkey")
    assert [*project.glob("src/*/harness/store/valkey.py")]
